// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_HIP_BACKEND_HPP
#define KFUSE_BACKENDS_HIP_BACKEND_HPP

#include <kfuse/backends/gpu/graph.hpp>
#include <kfuse/backends/gpu/timer.hpp>
#include <kfuse/backends/hip/arithmetic.hpp>
#include <kfuse/backends/hip/async_copy.hpp>
#include <kfuse/backends/hip/chip.hpp>
#include <kfuse/backends/hip/device.hpp>
#include <kfuse/backends/hip/lanes.hpp>
#include <kfuse/backends/hip/launch.hpp>
#include <kfuse/backends/hip/runtime.hpp>

#include <Kokkos_Core.hpp>

namespace kfuse::hip {

class Blas;  // blas.hpp

struct Backend {
  using Space = Kokkos::HIP;
  static constexpr bool is_host = false;
  static constexpr int lanes = chip.wave;
  using Device = hip::Device;
  using Timer = gpu::Timer<Runtime>;
  using Graph = gpu::Graph<Runtime>;
  template <class S>
  using Recorder = gpu::Recorder<Runtime>;
  using Blas = hip::Blas;
  using AsyncCopy = hip::AsyncCopy;

  template <class Kernel, class S>
  static void launch(S const& space, std::string const& label, std::ptrdiff_t league, std::size_t scratch_bytes,
                     Kernel const& kernel) {
    hip::launch<Kernel>(space, label, league, scratch_bytes, kernel);
  }
};

}  // namespace kfuse::hip

#endif
