// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_HIP_LANES_HPP
#define KFUSE_BACKENDS_HIP_LANES_HPP

#include <kfuse/backends/gpu/lanes.hpp>
#include <kfuse/backends/hip/chip.hpp>

#include <Kokkos_Core.hpp>

namespace kfuse::hip {

// Within a wave: 64 lanes on CDNA, 32 on RDNA.
struct Exchange {
  static constexpr int width = chip.wave;

  KOKKOS_INLINE_FUNCTION static unsigned shuffle_xor(unsigned word, [[maybe_unused]] int mask) {
#if defined(__HIP_DEVICE_COMPILE__)
    return __shfl_xor(word, mask);
#else
    return word;
#endif
  }
  KOKKOS_INLINE_FUNCTION static unsigned broadcast(unsigned word, [[maybe_unused]] int source) {
#if defined(__HIP_DEVICE_COMPILE__)
    return __shfl(word, source);
#else
    return word;
#endif
  }
  KOKKOS_INLINE_FUNCTION static void barrier() {
#if defined(__HIP_DEVICE_COMPILE__)
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#endif
  }
  KOKKOS_INLINE_FUNCTION static void wait_for_kernel_before() {}  // kernels do not overlap
  KOKKOS_INLINE_FUNCTION static void let_next_kernel_start() {}
};

}  // namespace kfuse::hip

namespace kfuse::impl {
template <class Team>
struct LanesOf;
template <>
struct LanesOf<Kokkos::TeamPolicy<Kokkos::HIP>::member_type>
    : gpu::Lanes<Kokkos::TeamPolicy<Kokkos::HIP>::member_type, hip::Exchange> {
  using Lanes::Lanes;
};
}  // namespace kfuse::impl

#endif
