// SPDX-License-Identifier: Apache-2.0
// What a launch must move and compute, stated by the code that does it.
#ifndef KFUSE_CORE_TRAFFIC_HPP
#define KFUSE_CORE_TRAFFIC_HPP

#include <cstddef>

namespace kfuse {

// The least device-memory traffic, in bytes, and the floating-point operations of some work.
struct Traffic {
  std::size_t bytes_read = 0;
  std::size_t bytes_written = 0;
  std::size_t flops = 0;

  constexpr std::size_t bytes() const { return bytes_read + bytes_written; }
  constexpr double intensity() const { return bytes() > 0 ? double(flops) / double(bytes()) : 0; }

  constexpr Traffic& operator+=(Traffic const& other) {
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    flops += other.flops;
    return *this;
  }
  friend constexpr Traffic operator+(Traffic a, Traffic const& b) { return a += b; }
  friend constexpr bool operator==(Traffic const&, Traffic const&) = default;
};

}  // namespace kfuse

#endif
