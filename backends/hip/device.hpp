// SPDX-License-Identifier: Apache-2.0
// What there is to know about an AMD GPU, copies on it, and time as its streams see it.
#ifndef KFUSE_BACKENDS_HIP_DEVICE_HPP
#define KFUSE_BACKENDS_HIP_DEVICE_HPP

#include <Kokkos_Core.hpp>

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace kfuse::hip {

// Throws if a call of the HIP runtime did not succeed. `what` says what was tried.
inline void check_status(hipError_t status, char const* what) {
  if (status == hipSuccess) return;
  (void)hipGetLastError();  // later calls shall not be blamed for this one
  throw std::runtime_error(std::string("HIP could not ") + what + ": " + hipGetErrorString(status));
}

struct Device {
  static constexpr char const* space_name = "hip";

  static std::string name(Kokkos::HIP const& space) { return properties(space).name; }
  static int multiprocessors(Kokkos::HIP const& space) { return properties(space).multiProcessorCount; }
  // With the memory-side cache, which no property tells of: 256 MiB beside MI300, up to 96 MiB on RDNA.
  static std::size_t cache_bytes(Kokkos::HIP const& space) {
    hipDeviceProp_t const found = properties(space);
    std::string const chip = found.gcnArchName;
    std::size_t const memory_side = chip.starts_with("gfx94") ? 256 : chip.starts_with("gfx1") ? 96 : 0;
    return std::size_t(found.l2CacheSize) + (memory_side << 20);
  }
  static std::size_t memory_free(Kokkos::HIP const& space) { return memory(space).first; }
  static std::size_t memory_total(Kokkos::HIP const& space) { return memory(space).second; }
  static std::string versions() {
    int runtime = 0;
    check_status(hipRuntimeGetVersion(&runtime), "tell its version");
    return "HIP " + std::to_string(runtime / 10000000) + "." + std::to_string(runtime / 100000 % 100);
  }

  // `to` and `from` are device memory. Returns before the copy is done.
  static void copy(Kokkos::HIP const& space, void* to, void const* from, std::size_t bytes) {
    check_status(hipMemcpyAsync(to, from, bytes, hipMemcpyDeviceToDevice, space.hip_stream()), "copy");
  }

 private:
  static hipDeviceProp_t properties(Kokkos::HIP const& space) {
    hipDeviceProp_t properties;
    check_status(hipGetDeviceProperties(&properties, space.hip_device()), "describe the device");
    return properties;
  }
  static std::pair<std::size_t, std::size_t> memory(Kokkos::HIP const&) {
    std::size_t free = 0, total = 0;
    check_status(hipMemGetInfo(&free, &total), "tell how much memory is free");
    return {free, total};
  }
};

// The time between two points of a stream, by its own clock.
class Timer {
 public:
  Timer() {
    check_status(hipEventCreate(&start_), "make an event");
    check_status(hipEventCreate(&stop_), "make an event");
  }
  Timer(Timer&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)), stop_(std::exchange(other.stop_, nullptr)) {}
  Timer& operator=(Timer&& other) noexcept {
    std::swap(start_, other.start_);
    std::swap(stop_, other.stop_);
    return *this;
  }
  ~Timer() {
    if (start_ != nullptr) (void)hipEventDestroy(start_);
    if (stop_ != nullptr) (void)hipEventDestroy(stop_);
  }

  void start(Kokkos::HIP const& space) { check_status(hipEventRecord(start_, space.hip_stream()), "start a timer"); }
  void stop(Kokkos::HIP const& space) { check_status(hipEventRecord(stop_, space.hip_stream()), "stop a timer"); }
  double seconds() const {
    float milliseconds = 0;
    check_status(hipEventSynchronize(stop_), "wait for a timer");
    check_status(hipEventElapsedTime(&milliseconds, start_, stop_), "read a timer");
    return double(milliseconds) * 1e-3;
  }

 private:
  hipEvent_t start_ = nullptr, stop_ = nullptr;
};

}  // namespace kfuse::hip

#endif
