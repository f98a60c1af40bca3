// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_CORE_LAUNCH_HPP
#define KFUSE_CORE_LAUNCH_HPP

#include <kfuse/backends/backend.hpp>
#include <kfuse/core/check.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>

namespace kfuse::impl {

// Arguments beyond go through memory on some GPUs, which breaks capture.
constexpr std::size_t most_kernel_bytes = 512;

// The one way a kernel is started. A kernel is a struct with
//   static constexpr int threads, registers   team size, and the most registers a thread may take
//   int team_size                             if the team is smaller, and only known at run time
//   template <class Team> operator()(Team const&) const
// that has memory, barriers and exchanges of LanesOf alone: those of Kokkos' team would use the same memory.
// `label` is what tools show: "kfuse::<operator>". An empty league launches nothing.
template <class Kernel, class Space>
void launch(Space const& space, std::string const& label, std::ptrdiff_t league, std::size_t scratch_bytes,
            Kernel const& kernel) {
  static_assert(sizeof(Kernel) <= most_kernel_bytes,
                "kernel arguments beyond 512 bytes go through memory on some GPUs, which breaks capture; split the "
                "chain into two calls of fuse");
  static_assert(Kernel::threads > 0 && Kernel::registers > 0, "a kernel states its launch bounds");
  static_assert(std::is_trivially_copyable_v<Kernel>, "a kernel is copied to the device byte by byte");
  check(Kokkos::is_initialized(), label, "Kokkos is not initialized; create a Kokkos::ScopeGuard in main first");
  check(league <= std::numeric_limits<int>::max(), label,
        "more than 2^31 - 1 teams; split the rows into several calls");
  if (league > 0) Backend<Space>::template launch<Kernel>(space, label, league, scratch_bytes, kernel);
}

}  // namespace kfuse::impl

#endif
