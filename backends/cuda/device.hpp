// SPDX-License-Identifier: Apache-2.0
// What there is to know about an NVIDIA GPU, copies on it, and time as its streams see it.
#ifndef KFUSE_BACKENDS_CUDA_DEVICE_HPP
#define KFUSE_BACKENDS_CUDA_DEVICE_HPP

#include <Kokkos_Core.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace kfuse::cuda {

// Throws if a call of the CUDA runtime did not succeed. `what` says what was tried.
inline void check_status(cudaError_t status, char const* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // later calls shall not be blamed for this one
  throw std::runtime_error(std::string("CUDA could not ") + what + ": " + cudaGetErrorString(status));
}

struct Device {
  static constexpr char const* space_name = "cuda";

  static std::string name(Kokkos::Cuda const& space) { return properties(space).name; }
  static int multiprocessors(Kokkos::Cuda const& space) { return properties(space).multiProcessorCount; }
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

// The time between two points of a stream, by its own clock.
class Timer {
 public:
  Timer() {
    check_status(cudaEventCreate(&start_), "make an event");
    check_status(cudaEventCreate(&stop_), "make an event");
  }
  Timer(Timer&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)), stop_(std::exchange(other.stop_, nullptr)) {}
  Timer& operator=(Timer&& other) noexcept {
    std::swap(start_, other.start_);
    std::swap(stop_, other.stop_);
    return *this;
  }
  ~Timer() {
    if (start_ != nullptr) cudaEventDestroy(start_);
    if (stop_ != nullptr) cudaEventDestroy(stop_);
  }

  void start(Kokkos::Cuda const& space) { check_status(cudaEventRecord(start_, space.cuda_stream()), "start a timer"); }
  void stop(Kokkos::Cuda const& space) { check_status(cudaEventRecord(stop_, space.cuda_stream()), "stop a timer"); }
  double seconds() const {
    float milliseconds = 0;
    check_status(cudaEventSynchronize(stop_), "wait for a timer");
    check_status(cudaEventElapsedTime(&milliseconds, start_, stop_), "read a timer");
    return double(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

}  // namespace kfuse::cuda

#endif
