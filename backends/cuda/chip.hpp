// SPDX-License-Identifier: Apache-2.0
// The one place that asks which NVIDIA chip it is: the one that Kokkos is built for, so that the host and all device
// passes agree.
#ifndef KFUSE_BACKENDS_CUDA_CHIP_HPP
#define KFUSE_BACKENDS_CUDA_CHIP_HPP

#include <Kokkos_Core.hpp>

namespace kfuse::cuda {

// What a multiprocessor holds at once, apart from 65536 registers.
struct Chip {
  int threads, teams;
  int team_memory;         // bytes, at least
  int most_team_memory;    // bytes that one team may have
  bool matrix_cores;       // with products of 16 bits and asynchronous copies
  bool overlaps_launches;  // programmatic dependent launch
};

#if defined(KOKKOS_ARCH_KEPLER) || defined(KOKKOS_ARCH_MAXWELL) || defined(KOKKOS_ARCH_PASCAL)
#error "kfuse: kernel arguments need compute capability 7.0 (Volta); build Kokkos for a newer NVIDIA GPU, or the host"
#elif defined(KOKKOS_ARCH_VOLTA)
constexpr Chip chip{2048, 32, 64 * 1024, 96 * 1024, false, false};
#elif defined(KOKKOS_ARCH_TURING75)
constexpr Chip chip{1024, 16, 64 * 1024, 64 * 1024, false, false};
#elif defined(KOKKOS_ARCH_AMPERE86) || defined(KOKKOS_ARCH_AMPERE87)
constexpr Chip chip{1536, 16, 100 * 1024, 99 * 1024, true, false};
#elif defined(KOKKOS_ARCH_AMPERE80)
constexpr Chip chip{2048, 32, 100 * 1024, 163 * 1024, true, false};
#elif defined(KOKKOS_ARCH_ADA89)
constexpr Chip chip{1536, 24, 100 * 1024, 99 * 1024, true, false};
#elif defined(KOKKOS_ARCH_BLACKWELL120)
constexpr Chip chip{1536, 24, 100 * 1024, 99 * 1024, true, true};
#else
constexpr Chip chip{2048, 32, 100 * 1024, 227 * 1024, true, true};
#endif

}  // namespace kfuse::cuda

#endif
