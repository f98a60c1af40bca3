// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_CUDA_LAUNCH_HPP
#define KFUSE_BACKENDS_CUDA_LAUNCH_HPP

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <string>

namespace kfuse::cuda {

// Teams that fit on a multiprocessor at once if each thread takes at most `registers` of its 65536 registers.
constexpr int resident_teams(int threads, int registers) {
  int const teams = 65536 / (registers * threads);
  return teams > 0 ? teams : 1;
}

// Runs `kernel` once for each of `league` teams of Kernel::threads threads, or kernel.team_size where that is known at
// run time alone, with `scratch_bytes` of team memory.
// Kernel::registers bounds the registers a thread may take, so that enough teams stay in flight.
// The light-weight hint makes the functor a kernel argument, which is asynchronous and can be captured.
template <class Kernel, class Space>
void launch(Space const& space, std::string const& label, std::ptrdiff_t league, std::size_t scratch_bytes,
            Kernel const& kernel) {
  using Bounds = Kokkos::LaunchBounds<Kernel::threads, resident_teams(Kernel::threads, Kernel::registers)>;
  int threads = Kernel::threads;
  if constexpr (requires { kernel.team_size; }) threads = kernel.team_size;
  Kokkos::TeamPolicy<Space, Bounds> policy(space, int(league), threads, 1);
  if (scratch_bytes > 0) policy.set_scratch_size(0, Kokkos::PerTeam(scratch_bytes + 16));
  Kokkos::parallel_for(
      label, Kokkos::Experimental::require(policy, Kokkos::Experimental::WorkItemProperty::HintLightWeight), kernel);
}

}  // namespace kfuse::cuda

#endif
