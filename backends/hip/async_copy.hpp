// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_HIP_ASYNC_COPY_HPP
#define KFUSE_BACKENDS_HIP_ASYNC_COPY_HPP

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace kfuse::hip {

// Copies to team memory, as backend.hpp describes them. Those of these GPUs go through registers, and are done as soon
// as they are asked for; other waves compute meanwhile.
struct AsyncCopy {
  KOKKOS_INLINE_FUNCTION static void start([[maybe_unused]] void* to, [[maybe_unused]] void const* from,
                                           [[maybe_unused]] bool exists) {
#if defined(__HIP_DEVICE_COMPILE__)
    using Chunk = std::uint32_t __attribute__((vector_size(16)));
    Chunk chunk{};
    if (exists) chunk = *static_cast<Chunk const*>(from);
    *static_cast<Chunk*>(to) = chunk;
#endif
  }
  KOKKOS_INLINE_FUNCTION static void wait() {}
  KOKKOS_INLINE_FUNCTION static void close_group() {}
  template <int groups>
  KOKKOS_INLINE_FUNCTION static void wait_for_all_but() {}
  static constexpr int lane_groups = 4, bytes_ahead = 0, team_bytes = 60 * 1024, team_registers = 32 * 1024;
};

}  // namespace kfuse::hip

#endif
