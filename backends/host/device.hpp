// SPDX-License-Identifier: Apache-2.0
// What there is to know about the host, copies on it, and time.
#ifndef KFUSE_BACKENDS_HOST_DEVICE_HPP
#define KFUSE_BACKENDS_HOST_DEVICE_HPP

#include <Kokkos_Core.hpp>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>

#include <unistd.h>

namespace kfuse::host {

struct Device {
  static constexpr char const* space_name = "host";

  template <class Space>
  static std::string name(Space const&) {
    std::string const model = text_after("/proc/cpuinfo", "model name");
    return model.empty() ? "host processor" : model;
  }
  template <class Space>
  static int multiprocessors(Space const& space) {
    return space.concurrency();
  }
  // The last level.
  template <class Space>
  static std::size_t cache_bytes(Space const&) {
    long bytes = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (bytes <= 0) bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return bytes > 0 ? std::size_t(bytes) : std::size_t(32) << 20;
  }
  template <class Space>
  static std::size_t memory_free(Space const&) {
    std::string const available = text_after("/proc/meminfo", "MemAvailable");
    return available.empty() ? 0 : std::stoull(available) << 10;
  }
  template <class Space>
  static std::size_t memory_total(Space const&) {
    return std::size_t(sysconf(_SC_PHYS_PAGES)) * std::size_t(sysconf(_SC_PAGE_SIZE));
  }
  static std::string versions() {
#if defined(__VERSION__)
    return std::string("compiler ") + __VERSION__;
#else
    return "compiler unknown";
#endif
  }

  template <class Space>
  static void copy(Space const& space, void* to, void const* from, std::size_t bytes) {
    using Bytes = Kokkos::View<char*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
    using ConstBytes = Kokkos::View<char const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
    Kokkos::deep_copy(space, Bytes(static_cast<char*>(to), bytes), ConstBytes(static_cast<char const*>(from), bytes));
  }

 private:
  // What follows the colon of the first line that begins with `key`.
  static std::string text_after(char const* file, char const* key) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      if (line.rfind(key, 0) != 0) continue;
      std::size_t const colon = line.find(':');
      std::size_t const begin = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
      return begin == std::string::npos ? std::string() : line.substr(begin);
    }
    return {};
  }
};

// The time between two points of the work on a space, which it waits for at both.
class Timer {
 public:
  template <class Space>
  void start(Space const& space) {
    space.fence("kfuse::Timer::start");
    start_ = Clock::now();
  }
  template <class Space>
  void stop(Space const& space) {
    space.fence("kfuse::Timer::stop");
    stop_ = Clock::now();
  }
  double seconds() const { return std::chrono::duration<double>(stop_ - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_, stop_;
};

}  // namespace kfuse::host

#endif
