// SPDX-License-Identifier: Apache-2.0
// The host has no graphs: nothing is recorded, and who wants to replay calls the work again.
#ifndef KFUSE_BACKENDS_HOST_GRAPH_HPP
#define KFUSE_BACKENDS_HOST_GRAPH_HPP

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <stdexcept>

namespace kfuse::host {

// A recorded graph; there is none.
class Graph {
 public:
  template <class Space>
  void launch(Space const&) const {}
  int kernels() const { return 0; }
  int nodes() const { return 0; }
  std::size_t bytes() const { return 0; }
};

// An instance of its own.
template <class Space>
class Recorder {
 public:
  Space const& space() const { return space_; }

  template <class Work>
  Graph record(Work const&) const {
    throw std::runtime_error("the host has no graphs; the work is called instead");
  }

 private:
  Space space_;
};

}  // namespace kfuse::host

#endif
