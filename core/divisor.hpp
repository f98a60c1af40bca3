// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_CORE_DIVISOR_HPP
#define KFUSE_CORE_DIVISOR_HPP

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace kfuse::impl {

// Division of numbers below 2^31 by one that is known at launch: a multiplication (Granlund, Montgomery 1994).
struct Divisor {
  unsigned divisor = 1, multiplier = 1u << 31;
  int shift = 31;

  Divisor() = default;
  explicit Divisor(unsigned d) : divisor(d) {
    while ((std::uint64_t(1) << (shift - 31)) < d) ++shift;
    multiplier = unsigned(((std::uint64_t(1) << shift) + d - 1) / d);
  }
  KOKKOS_FUNCTION unsigned quotient(unsigned n) const { return unsigned((std::uint64_t(n) * multiplier) >> shift); }
};

}  // namespace kfuse::impl

#endif
