// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_CUDA_LAUNCH_HPP
#define KFUSE_BACKENDS_CUDA_LAUNCH_HPP

#include <kfuse/backends/cuda/chip.hpp>
#include <kfuse/core/check.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace kfuse::cuda {

// Teams that fit on a multiprocessor at once if each thread takes at most `registers` of its 65536 registers.
constexpr int resident_teams(int threads, int registers) {
  return std::max(1, std::min({65536 / (registers * threads), chip.threads / threads, chip.teams}));
}

// Does a kernel say, by a constant, that its team needs more memory than every Kokkos gives? (Up to 5.1 none gives
// more.)
template <class Kernel>
constexpr bool is_large() {
  if constexpr (requires { Kernel::scratch_bytes; })
    return Kernel::scratch_bytes > 40 * 1024;
  else
    return false;
}

// Teams that Kokkos shall keep on a multiprocessor: it refuses to launch if their memory does not allow for so many.
template <class Kernel>
constexpr int kokkos_teams() {
  int const teams = resident_teams(Kernel::threads, Kernel::registers);
  if constexpr (requires { Kernel::scratch_bytes; })
    return std::clamp(int(chip.team_memory / Kernel::scratch_bytes), 1, teams);
  else
    return teams;
}

// What Kokkos' own reductions over a team keep, before the team's scratch.
template <class Kernel>
constexpr std::size_t reduction_bytes = sizeof(double) * (Kernel::threads + 2);

template <class Kernel>
__global__ __launch_bounds__(Kernel::threads, resident_teams(Kernel::threads, Kernel::registers)) void large_team(
    __grid_constant__ Kernel const kernel, std::size_t scratch_bytes) {
  extern __shared__ double team_memory[];
  using Team = Kokkos::TeamPolicy<Kokkos::Cuda>::member_type;
  kernel(Team(team_memory, reduction_bytes<Kernel>, scratch_bytes, nullptr, 0, int(blockIdx.x), int(gridDim.x)));
}

// The same kernel over the same teams, with more team memory than parallel_for offers. Tools see it as any other.
template <class Kernel>
void launch_large(Kokkos::Cuda const& space, std::string const& label, std::ptrdiff_t league, std::size_t scratch_bytes,
                  Kernel const& kernel) {
  std::size_t const bytes = reduction_bytes<Kernel> + scratch_bytes;
  auto const done = [&](cudaError_t status, char const* what) {
    if (status != cudaSuccess) cudaGetLastError();  // not to be found again after the next launch
    impl::check(status == cudaSuccess, label, [&] { return std::string(what) + ": " + cudaGetErrorString(status); });
  };
  done(cudaSetDevice(space.cuda_device()), "the device could not be chosen");
  done(cudaFuncSetAttribute(&large_team<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)),
       "this device does not have the team memory that the kernel needs");
  std::uint64_t id = 0;
  bool const watched = Kokkos::Tools::profileLibraryLoaded();
  if (watched) Kokkos::Tools::beginParallelFor(label, Kokkos::Tools::Experimental::device_id(space), &id);
  large_team<Kernel><<<unsigned(league), dim3(1, Kernel::threads), bytes, space.cuda_stream()>>>(kernel, scratch_bytes);
  if (watched) Kokkos::Tools::endParallelFor(id);
  done(cudaGetLastError(), "the kernel could not be launched");
}

// Runs `kernel` once for each of `league` teams of Kernel::threads threads, or kernel.team_size where that is known at
// run time alone, with `scratch_bytes` of team memory.
// Kernel::registers bounds the registers a thread may take, so that enough teams stay in flight.
// The light-weight hint makes the functor a kernel argument, which is asynchronous and can be captured.
template <class Kernel, class Space>
void launch(Space const& space, std::string const& label, std::ptrdiff_t league, std::size_t scratch_bytes,
            Kernel const& kernel) {
  using Bounds = Kokkos::LaunchBounds<Kernel::threads, kokkos_teams<Kernel>()>;
  if constexpr (is_large<Kernel>()) {
    launch_large(space, label, league, scratch_bytes + 16, kernel);
  } else {
    int threads = Kernel::threads;
    if constexpr (requires { kernel.team_size; }) threads = kernel.team_size;
    Kokkos::TeamPolicy<Space, Bounds> policy(space, int(league), threads, 1);
    if (scratch_bytes > 0) policy.set_scratch_size(0, Kokkos::PerTeam(scratch_bytes + 16));
    Kokkos::parallel_for(
        label, Kokkos::Experimental::require(policy, Kokkos::Experimental::WorkItemProperty::HintLightWeight), kernel);
  }
}

}  // namespace kfuse::cuda

#endif
