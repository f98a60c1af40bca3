// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_HOST_LAUNCH_HPP
#define KFUSE_BACKENDS_HOST_LAUNCH_HPP

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <string>

namespace kfuse::host {

// Runs `kernel` once for each of `league` teams of one lane with `scratch_bytes` of team memory. That is taken from
// level 1, which on the host is the same memory as level 0 and is not limited to 32 KiB.
template <class Kernel, class Space>
void launch(Space const& space, std::string const& label, std::ptrdiff_t league, std::size_t scratch_bytes,
            Kernel const& kernel) {
  Kokkos::TeamPolicy<Space> policy(space, int(league), 1, 1);
  if (scratch_bytes > 0) policy.set_scratch_size(1, Kokkos::PerTeam(scratch_bytes + 16));
  Kokkos::parallel_for(label, policy, kernel);
}

}  // namespace kfuse::host

#endif
