// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_CUDA_ASYNC_COPY_HPP
#define KFUSE_BACKENDS_CUDA_ASYNC_COPY_HPP

#include <kfuse/backends/cuda/chip.hpp>

#include <Kokkos_Core.hpp>

namespace kfuse::cuda {

// Where team memory lies for instructions that reach nothing else.
KOKKOS_INLINE_FUNCTION unsigned team_address([[maybe_unused]] void const* p) {
#if defined(__CUDA_ARCH__)
  return unsigned(__cvta_generic_to_shared(p));
#else
  return 0;
#endif
}

// Copies to team memory, as backend.hpp describes them, that pass the registers by (cp.async).
struct AsyncCopy {
  KOKKOS_INLINE_FUNCTION static void start([[maybe_unused]] void* to, [[maybe_unused]] void const* from,
                                           [[maybe_unused]] bool exists) {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(team_address(to)), "l"(from),
                 "r"(exists ? 16 : 0)
                 : "memory");
#endif
  }
  KOKKOS_INLINE_FUNCTION static void wait() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  }
  KOKKOS_INLINE_FUNCTION static void close_group() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  }
  template <int groups>
  KOKKOS_INLINE_FUNCTION static void wait_for_all_but() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#endif
  }
  static constexpr int lane_groups = 8, bytes_ahead = 8 * 1024;
  // H200, 2026-12-01, a Llama-3-8B layer at decode: two stages of 4 KiB for each of 8 groups 112 us, three of 6 groups
  // 113. The next kernel's team finds room beside one with few rows.
  static constexpr int team_bytes = chip.most_team_memory, team_registers = 32 * 1024;
};

// The same through registers, done as soon as it is asked for: for chips before Ampere.
struct PlainCopy {
  KOKKOS_INLINE_FUNCTION static void start([[maybe_unused]] void* to, [[maybe_unused]] void const* from,
                                           [[maybe_unused]] bool exists) {
#if defined(__CUDA_ARCH__)
    *static_cast<uint4*>(to) = exists ? *static_cast<uint4 const*>(from) : uint4{};
#endif
  }
  KOKKOS_INLINE_FUNCTION static void wait() {}
  KOKKOS_INLINE_FUNCTION static void close_group() {}
  template <int groups>
  KOKKOS_INLINE_FUNCTION static void wait_for_all_but() {}
  static constexpr int lane_groups = 4, bytes_ahead = 0, team_bytes = chip.most_team_memory, team_registers = 32 * 1024;
};

}  // namespace kfuse::cuda

#endif
