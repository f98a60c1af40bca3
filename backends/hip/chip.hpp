// SPDX-License-Identifier: Apache-2.0
// The one place that asks which AMD chip it is: the one that Kokkos is built for, so that the host and all device
// passes agree.
#ifndef KFUSE_BACKENDS_HIP_CHIP_HPP
#define KFUSE_BACKENDS_HIP_CHIP_HPP

#include <Kokkos_Core.hpp>

namespace kfuse::hip {

enum class MatrixCores { none, mfma, wmma };

struct Chip {
  int wave;       // lanes that go in step
  int registers;  // that a SIMD unit has for each lane, shared by
  int waves;      // at most
  MatrixCores matrix_cores;
};

#if defined(KOKKOS_ARCH_AMD_GFX1100)
constexpr Chip chip{32, 1536, 16, MatrixCores::wmma};
#elif defined(KOKKOS_ARCH_AMD_GFX1103)
constexpr Chip chip{32, 1024, 16, MatrixCores::wmma};
#elif defined(KOKKOS_ARCH_AMD_GFX1201)  // its WMMA has another lane map
constexpr Chip chip{32, 1536, 16, MatrixCores::none};
#elif defined(KOKKOS_ARCH_AMD_GFX1030)
constexpr Chip chip{32, 1024, 16, MatrixCores::none};
#elif defined(KOKKOS_ARCH_AMD_GFX906) || defined(KOKKOS_ARCH_AMD_GFX908)
constexpr Chip chip{64, 256, 8, MatrixCores::none};
#elif defined(KOKKOS_ARCH_AMD_GFX90A) || defined(KOKKOS_ARCH_AMD_GFX940) || defined(KOKKOS_ARCH_AMD_GFX942) || \
    defined(KOKKOS_ARCH_AMD_GFX942_APU) || defined(KOKKOS_ARCH_AMD_GFX950) || !defined(KOKKOS_ARCH_AMD_GPU)
constexpr Chip chip{64, 512, 8, MatrixCores::mfma};
#else
#error "kfuse does not know the AMD chip that Kokkos is built for; add it to backends/hip/chip.hpp"
#endif

}  // namespace kfuse::hip

#endif
