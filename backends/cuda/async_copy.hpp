// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_CUDA_ASYNC_COPY_HPP
#define KFUSE_BACKENDS_CUDA_ASYNC_COPY_HPP

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

// Copies to team memory that pass the registers by (cp.async).
struct AsyncCopy {
  // 16 bytes, both sides aligned to 16; zeros where nothing exists, and then `from` is not read.
  KOKKOS_INLINE_FUNCTION static void start([[maybe_unused]] void* to, [[maybe_unused]] void const* from,
                                           [[maybe_unused]] bool exists) {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(team_address(to)), "l"(from),
                 "r"(exists ? 16 : 0)
                 : "memory");
#endif
  }
  // What this lane has started is there; for other lanes, after a barrier.
  KOKKOS_INLINE_FUNCTION static void wait() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  }
};

}  // namespace kfuse::cuda

#endif
