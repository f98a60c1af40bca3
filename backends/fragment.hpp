// SPDX-License-Identifier: Apache-2.0
// The matrix instructions of this build's backends, as core/fragment.hpp describes them. A backend's MatrixUnit offers
//   Fragment<Element>   products in registers
//   AsyncCopy           copies to team memory (backend.hpp)
//   is_hardware         is it faster than plain loops?
//   lane_groups         that attention has in a team,
//   row_blocks          the fragments of rows that each of them has, and
//   tile_keys           the keys that they take at once: so that all of it fits in registers and team memory
#ifndef KFUSE_BACKENDS_FRAGMENT_HPP
#define KFUSE_BACKENDS_FRAGMENT_HPP

#include <kfuse/backends/backend.hpp>
#include <kfuse/backends/host/fragment.hpp>

#include <type_traits>
#if defined(KOKKOS_ENABLE_CUDA)
#include <kfuse/backends/cuda/chip.hpp>
#include <kfuse/backends/cuda/fragment.hpp>
#elif defined(KOKKOS_ENABLE_HIP)
#include <kfuse/backends/hip/fragment.hpp>
#endif

namespace kfuse::impl {

// void: this space has none.
template <class Space>
struct MatrixUnitOf {
  using type = std::conditional_t<Backend<Space>::is_host, host::MatrixUnit, void>;
};
#if defined(KOKKOS_ENABLE_CUDA)
template <>
struct MatrixUnitOf<Kokkos::Cuda> {
  using type = std::conditional_t<cuda::chip.matrix_cores, cuda::MatrixUnit<>, void>;
};
#elif defined(KOKKOS_ENABLE_HIP)
template <>
struct MatrixUnitOf<Kokkos::HIP> {
  using type = hip::MatrixUnit;
};
#endif
template <class Space>
using MatrixUnit = typename MatrixUnitOf<Space>::type;

}  // namespace kfuse::impl

#endif
