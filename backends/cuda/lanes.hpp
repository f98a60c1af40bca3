// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_CUDA_LANES_HPP
#define KFUSE_BACKENDS_CUDA_LANES_HPP

#include <kfuse/backends/gpu/lanes.hpp>

#include <Kokkos_Core.hpp>

namespace kfuse::cuda {

// Within a warp.
struct Exchange {
  static constexpr int width = 32;

  KOKKOS_INLINE_FUNCTION static unsigned shuffle_xor(unsigned word, [[maybe_unused]] int mask) {
#if defined(__CUDA_ARCH__)
    return __shfl_xor_sync(~0u, word, mask);
#else
    return word;
#endif
  }
  KOKKOS_INLINE_FUNCTION static unsigned broadcast(unsigned word, [[maybe_unused]] int source) {
#if defined(__CUDA_ARCH__)
    return __shfl_sync(~0u, word, source);
#else
    return word;
#endif
  }
};

}  // namespace kfuse::cuda

namespace kfuse::impl {
template <class Team>
struct LanesOf;
template <>
struct LanesOf<Kokkos::TeamPolicy<Kokkos::Cuda>::member_type>
    : gpu::Lanes<Kokkos::TeamPolicy<Kokkos::Cuda>::member_type, cuda::Exchange> {
  using Lanes::Lanes;
};
}  // namespace kfuse::impl

#endif
