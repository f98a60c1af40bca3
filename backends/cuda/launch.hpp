// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_CUDA_LAUNCH_HPP
#define KFUSE_BACKENDS_CUDA_LAUNCH_HPP

#include <kfuse/backends/cuda/chip.hpp>
#include <kfuse/backends/cuda/lanes.hpp>
#include <kfuse/core/check.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace kfuse::cuda {

// Teams that fit on a multiprocessor at once if each thread takes at most `registers` of its 65536 registers.
constexpr int resident_teams(int threads, int registers) {
  return std::max(1, std::min({65536 / (registers * threads), chip.threads / threads, chip.teams}));
}

// Teams that a kernel states for its launch bounds, which give each thread its registers. Where two or more would fit
// into the team memory that chips have at least, but not so many, it states what fits.
template <class Kernel>
constexpr int stated_teams() {
  int const teams = resident_teams(Kernel::threads, Kernel::registers);
  if constexpr (requires { Kernel::scratch_bytes; }) {
    int const fit = int(chip.team_memory / Kernel::scratch_bytes);
    return fit > 1 ? std::min(fit, teams) : teams;
  } else {
    return teams;
  }
}

using Team = Kokkos::TeamPolicy<Kokkos::Cuda>::member_type;
static_assert(std::is_constructible_v<Team, void*, int, int, void*, int, int, int>,
              "kfuse: this Kokkos makes its team handles of other things than 4.6 to 5.2 do; build with one of these");

// The bounds are part of the name, for those who read machine code.
template <class Kernel, int threads, int teams>
__global__ __launch_bounds__(threads, teams) void team_kernel(__grid_constant__ Kernel const kernel,
                                                              int scratch_bytes) {
  if constexpr (!requires { Kernel::waits_itself; }) {
    Exchange::wait_for_kernel_before();
    Exchange::let_next_kernel_start();
  }
  kernel(Team(gpu::team_memory(), 0, scratch_bytes, nullptr, 0, int(blockIdx.x), int(gridDim.x)));
}

// Runs `kernel` once for each of `league` teams of Kernel::threads threads, or kernel.team_size where that is known at
// run time alone, with `scratch_bytes` of team memory. Kernel::registers bounds the registers a thread may take, so
// that enough teams stay in flight.
//
// This is what parallel_for does for a team policy, and Kokkos' tools see it as that, but with more team memory, and
// with launches that begin while the kernel before them ends. It is asynchronous and can be captured.
template <class Kernel, class Space>
void launch(Space const& space, std::string const& label, std::ptrdiff_t league, std::size_t scratch_bytes,
            Kernel const& kernel) {
  if constexpr (requires { Kernel::scratch_bytes; })
    static_assert(Kernel::scratch_bytes <= chip.most_team_memory, "choose smaller tiles for this chip");
  auto const done = [&](cudaError_t status, char const* what) {
    if (status != cudaSuccess) cudaGetLastError();  // not to be found again after the next launch
    impl::check(status == cudaSuccess, label, [&] {
      return std::string(what) + " (" + cudaGetErrorString(status) +
             "); if an earlier kernel is the cause, compute-sanitizer tells which";
    });
  };
  auto* const entry = &team_kernel<Kernel, Kernel::threads, stated_teams<Kernel>()>;
  cudaDeviceProp const& device = space.cuda_device_prop();
  impl::check(scratch_bytes <= device.sharedMemPerBlockOptin, label, [&] {
    return "a team needs " + std::to_string(scratch_bytes) + " bytes of memory, and this device has " +
           std::to_string(device.sharedMemPerBlockOptin) + "; make the sums or tiles of the kernel smaller";
  });
  done(cudaSetDevice(space.cuda_device()), "the device could not be chosen");
  if (scratch_bytes > device.sharedMemPerBlock)  // always the same number, whatever other threads launch
    done(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, int(device.sharedMemPerBlockOptin)),
         "the team memory could not be had");
  if constexpr (requires { Kernel::waits_itself; })  // its teams shall find room beside those of a kernel of its kind
    done(cudaFuncSetAttribute(entry, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
         "the share of team memory could not be set");
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(league));
  config.blockDim = dim3(1, unsigned(Kernel::threads));
  if constexpr (requires { kernel.team_size; }) config.blockDim.y = unsigned(kernel.team_size);
  config.dynamicSmemBytes = scratch_bytes;
  config.stream = space.cuda_stream();
  config.attrs = &overlap;
  config.numAttrs = chip.overlaps_launches && device.major >= 9 ? 1 : 0;
  std::uint64_t id = 0;
  bool const watched = Kokkos::Tools::profileLibraryLoaded();
  if (watched) Kokkos::Tools::beginParallelFor(label, Kokkos::Tools::Experimental::device_id(space), &id);
  cudaError_t const status = cudaLaunchKernelEx(&config, entry, kernel, int(scratch_bytes));
  if (watched) Kokkos::Tools::endParallelFor(id);
  done(status, "the kernel could not be launched");
}

}  // namespace kfuse::cuda

#endif
