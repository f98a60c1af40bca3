// SPDX-License-Identifier: Apache-2.0
// Matrix products on AMD GPUs: no library is called yet. All products run in our own kernel.
#ifndef KFUSE_BACKENDS_HIP_BLAS_HPP
#define KFUSE_BACKENDS_HIP_BLAS_HPP

#include <kfuse/core/product.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace kfuse::hip {

class Blas {
 public:
  template <class Space>
  Blas(Space const&, std::size_t /*workspace_bytes*/, bool /*tune*/) {}

  static constexpr bool fuses(ElementType, impl::ProductEpilogue const&) { return false; }
  bool supports(impl::Product const&) const { return false; }
  template <class Space>
  void run(Space const&, impl::Product const&) const {}
};

}  // namespace kfuse::hip

#endif
