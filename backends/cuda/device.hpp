// SPDX-License-Identifier: Apache-2.0
// What there is to know about an NVIDIA GPU, and copies on it.
#ifndef KFUSE_BACKENDS_CUDA_DEVICE_HPP
#define KFUSE_BACKENDS_CUDA_DEVICE_HPP

#include <kfuse/backends/cuda/runtime.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace kfuse::cuda {

struct Device {
  static constexpr char const* space_name = "cuda";

  static std::string name(Kokkos::Cuda const& space) { return properties(space).name; }
  static int multiprocessors(Kokkos::Cuda const& space) {
    return space.cuda_device_prop().multiProcessorCount;  // known since the beginning: operators ask
  }
  static std::size_t cache_bytes(Kokkos::Cuda const& space) { return std::size_t(properties(space).l2CacheSize); }
  static std::size_t memory_free(Kokkos::Cuda const& space) { return memory(space).first; }
  static std::size_t memory_total(Kokkos::Cuda const& space) { return memory(space).second; }
  static std::string versions() {
    int runtime = 0, driver = 0;
    check_status(cudaRuntimeGetVersion(&runtime), "tell its version");
    check_status(cudaDriverGetVersion(&driver), "tell its driver's version");
    return "CUDA " + version_text(runtime) + " (driver for " + version_text(driver) + ")";
  }

  // `to` and `from` are device memory. Returns before the copy is done.
  static void copy(Kokkos::Cuda const& space, void* to, void const* from, std::size_t bytes) {
    check_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, space.cuda_stream()), "copy");
  }

 private:
  static cudaDeviceProp properties(Kokkos::Cuda const& space) {
    cudaDeviceProp properties;
    check_status(cudaGetDeviceProperties(&properties, space.cuda_device()), "describe the device");
    return properties;
  }
  static std::pair<std::size_t, std::size_t> memory(Kokkos::Cuda const&) {
    std::size_t free = 0, total = 0;
    check_status(cudaMemGetInfo(&free, &total), "tell how much memory is free");
    return {free, total};
  }
  static std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  }
};

}  // namespace kfuse::cuda

#endif
