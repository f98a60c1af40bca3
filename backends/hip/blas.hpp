// SPDX-License-Identifier: Apache-2.0
// Matrix products of AMD GPUs: by the best library that CMake found and links, hipBLASLt, else rocBLAS; or by none.
#ifndef KFUSE_BACKENDS_HIP_BLAS_HPP
#define KFUSE_BACKENDS_HIP_BLAS_HPP

#include <kfuse/backends/hip/hipblaslt.hpp>
#include <kfuse/backends/hip/rocblas.hpp>
#include <kfuse/core/product.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace kfuse::hip {

// Takes no product: all of them run in our own kernel.
struct NoBlas {
  NoBlas(Kokkos::HIP const&, std::size_t /*workspace_bytes*/, bool /*tune*/) {}
  static constexpr bool fuses(ElementType, impl::ProductEpilogue const&) { return false; }
  bool supports(impl::Product const&) const { return false; }
  void run(Kokkos::HIP const&, impl::Product const&) const {}
};

#if defined(KFUSE_HIPBLASLT)
using BlasLibrary = gpu::LtBlas<Lt>;
#elif defined(KFUSE_ROCBLAS)
using BlasLibrary = RocBlas;
#else
using BlasLibrary = NoBlas;
#endif

class Blas : public BlasLibrary {
 public:
  using BlasLibrary::BlasLibrary;
};

}  // namespace kfuse::hip

#endif
