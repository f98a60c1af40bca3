// SPDX-License-Identifier: Apache-2.0
// What there is to know about an AMD GPU, and copies on it.
#ifndef KFUSE_BACKENDS_HIP_DEVICE_HPP
#define KFUSE_BACKENDS_HIP_DEVICE_HPP

#include <kfuse/backends/hip/runtime.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace kfuse::hip {

struct Device {
  static constexpr char const* space_name = "hip";

  static std::string name(Kokkos::HIP const& space) { return properties(space).name; }
  static int multiprocessors(Kokkos::HIP const& space) {
    return space.hip_device_prop().multiProcessorCount;  // known since the beginning: operators ask
  }
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

}  // namespace kfuse::hip

#endif
