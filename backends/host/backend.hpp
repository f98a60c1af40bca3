// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_HOST_BACKEND_HPP
#define KFUSE_BACKENDS_HOST_BACKEND_HPP

#include <kfuse/backends/host/arithmetic.hpp>
#include <kfuse/backends/host/async_copy.hpp>
#include <kfuse/backends/host/device.hpp>
#include <kfuse/backends/host/graph.hpp>
#include <kfuse/backends/host/lanes.hpp>
#include <kfuse/backends/host/launch.hpp>

#include <Kokkos_Core.hpp>

namespace kfuse::host {

class Blas;  // blas.hpp

struct Backend {
  using Space = Kokkos::DefaultHostExecutionSpace;
  static constexpr bool is_host = true;
  static constexpr int lanes = 1;  // that exchange values without memory
  using Device = host::Device;
  using Timer = host::Timer;
  using Graph = host::Graph;
  template <class S>
  using Recorder = host::Recorder<S>;
  using Blas = host::Blas;
  using AsyncCopy = host::AsyncCopy;

  template <class Kernel, class S>
  static void launch(S const& space, std::string const& label, std::ptrdiff_t league, std::size_t scratch_bytes,
                     Kernel const& kernel) {
    host::launch<Kernel>(space, label, league, scratch_bytes, kernel);
  }
};

}  // namespace kfuse::host

#endif
