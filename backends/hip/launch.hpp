// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_HIP_LAUNCH_HPP
#define KFUSE_BACKENDS_HIP_LAUNCH_HPP

#include <kfuse/backends/hip/chip.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace kfuse::hip {

// Waves that a SIMD unit can hold at once if each thread takes at most twice `registers`: addresses and masks take more
// here than on NVIDIA GPUs. HIP's launch bounds count waves, where CUDA's count teams.
constexpr int resident_waves(int registers) {
  return std::clamp(chip.registers / (2 * registers), 1, chip.waves);
}

// Is there team memory for what the kernel says, by a constant, that it needs, and for what Kokkos keeps beside it,
// which is a word, with its alignment, and room for reductions of its own? All these chips give a team 64 KiB.
template <class Kernel>
constexpr bool fits_in_team_memory() {
  if constexpr (requires { Kernel::scratch_bytes; })
    return Kernel::scratch_bytes + 16 + sizeof(double) * (Kernel::threads + 2) <= 64 * 1024;
  else
    return true;
}

// Runs `kernel` once for each of `league` teams of Kernel::threads threads, or kernel.team_size where that is known at
// run time alone, with `scratch_bytes` of team memory. The light-weight hint makes the functor a kernel argument, which
// is the only way that is asynchronous and can be captured.
template <class Kernel, class Space>
void launch(Space const& space, std::string const& label, std::ptrdiff_t league, std::size_t scratch_bytes,
            Kernel const& kernel) {
  static_assert(fits_in_team_memory<Kernel>(), "a team of this GPU has 64 KiB of memory; choose smaller tiles");
  using Bounds = Kokkos::LaunchBounds<Kernel::threads, resident_waves(Kernel::registers)>;
  int threads = Kernel::threads;
  if constexpr (requires { kernel.team_size; }) threads = kernel.team_size;
  Kokkos::TeamPolicy<Space, Bounds> policy(space, int(league), threads, 1);
  if (scratch_bytes > 0) policy.set_scratch_size(0, Kokkos::PerTeam(scratch_bytes));
  Kokkos::parallel_for(
      label, Kokkos::Experimental::require(policy, Kokkos::Experimental::WorkItemProperty::HintLightWeight), kernel);
}

}  // namespace kfuse::hip

#endif
