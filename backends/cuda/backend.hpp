// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_CUDA_BACKEND_HPP
#define KFUSE_BACKENDS_CUDA_BACKEND_HPP

#include <kfuse/backends/cuda/arithmetic.hpp>
#include <kfuse/backends/cuda/async_copy.hpp>
#include <kfuse/backends/cuda/chip.hpp>
#include <kfuse/backends/cuda/device.hpp>
#include <kfuse/backends/cuda/lanes.hpp>
#include <kfuse/backends/cuda/launch.hpp>
#include <kfuse/backends/cuda/runtime.hpp>
#include <kfuse/backends/gpu/graph.hpp>
#include <kfuse/backends/gpu/timer.hpp>

#include <Kokkos_Core.hpp>

#include <type_traits>

namespace kfuse::cuda {

class Blas;  // blas.hpp

struct Backend {
  using Space = Kokkos::Cuda;
  static constexpr bool is_host = false;
  static constexpr int lanes = 32;
  using Device = cuda::Device;
  using Timer = gpu::Timer<Runtime>;
  using Graph = gpu::Graph<Runtime>;
  template <class S>
  using Recorder = gpu::Recorder<Runtime>;
  using Blas = cuda::Blas;
  using AsyncCopy = std::conditional_t<chip.matrix_cores, cuda::AsyncCopy, PlainCopy>;

  template <class Kernel, class S>
  static void launch(S const& space, std::string const& label, std::ptrdiff_t league, std::size_t scratch_bytes,
                     Kernel const& kernel) {
    cuda::launch<Kernel>(space, label, league, scratch_bytes, kernel);
  }
};

}  // namespace kfuse::cuda

#endif
