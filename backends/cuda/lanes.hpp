// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_CUDA_LANES_HPP
#define KFUSE_BACKENDS_CUDA_LANES_HPP

#include <kfuse/backends/gpu/lanes.hpp>

#include <Kokkos_Core.hpp>

namespace kfuse::cuda {

// Within a warp, and between kernels.
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
  KOKKOS_INLINE_FUNCTION static void barrier() {
#if defined(__CUDA_ARCH__)
    __syncwarp();
#endif
  }
  // Without launches that overlap these do nothing.
  KOKKOS_INLINE_FUNCTION static void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  }
  KOKKOS_INLINE_FUNCTION static void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
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
