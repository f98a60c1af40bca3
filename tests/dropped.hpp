// SPDX-License-Identifier: Apache-2.0
// What dropout drops, by the definition of its random numbers and apart from the library's.
#ifndef KFUSE_TESTS_DROPPED_HPP
#define KFUSE_TESTS_DROPPED_HPP

#include <kfuse/core/random.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kfuse::test {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, section 3.3): ten rounds, the key raised after each.
inline std::array<std::uint64_t, 4> philox_words(std::array<std::uint64_t, 4> c, std::uint64_t seed) {
  std::uint64_t low = seed & 0xffffffff, high = seed >> 32;
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const a = 0xD2511F53 * c[0], b = 0xCD9E8D57 * c[2];
    c = {(b >> 32) ^ c[1] ^ low, b & 0xffffffff, (a >> 32) ^ c[3] ^ high, a & 0xffffffff};
    low = (low + 0x9E3779B9) & 0xffffffff;
    high = (high + 0xBB67AE85) & 0xffffffff;
  }
  return c;
}

// Column 4 q + i of a row has word i of the counter (q, row, offset), of 32, 48 and 48 bits; a value is dropped if
// that word, as a fraction of 2^32, is below p.
inline bool is_dropped(double p, RandomState const& state, std::uint64_t row, int column) {
  auto const words = philox_words({std::uint64_t(column / 4), row & 0xffffffff, state.offset & 0xffffffff,
                                   ((row >> 32) & 0xffff) | ((state.offset >> 32) & 0xffff) << 16},
                                  state.seed);
  return double(words[std::size_t(column % 4)]) * 0x1p-32 < p;
}

// dropout(x), for rows of `columns` values. NaNs and infinities are dropped like all others.
inline std::vector<double> dropped(std::vector<double> x, int columns, double p, RandomState const& state) {
  for (std::size_t i = 0; i < x.size() && p > 0; ++i)
    x[i] = is_dropped(p, state, i / columns, int(i % columns)) ? 0 : x[i] / (1 - p);
  return x;
}

}  // namespace kfuse::test

#endif
