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

// Philox4x32 (Salmon, Moraes, Dror, Shaw 2011, section 3.3): the key is raised after each round.
inline std::array<std::uint64_t, 4> philox_words(int rounds, std::array<std::uint64_t, 4> c, std::uint64_t seed) {
  std::uint64_t low = seed & 0xffffffff, high = seed >> 32;
  for (int round = 0; round < rounds; ++round) {
    std::uint64_t const a = 0xD2511F53 * c[0], b = 0xCD9E8D57 * c[2];
    c = {(b >> 32) ^ c[1] ^ low, b & 0xffffffff, (a >> 32) ^ c[3] ^ high, a & 0xffffffff};
    low = (low + 0x9E3779B9) & 0xffffffff;
    high = (high + 0xBB67AE85) & 0xffffffff;
  }
  return c;
}

// Sixteen-bit number i of the eight of Philox4x32-7 under the counter (block, row, offset), of 32, 48 and 48 bits: a
// word holds two, the lower bits first.
inline double random_number(RandomState const& state, std::uint64_t row, std::uint64_t block, int i) {
  auto const words = philox_words(7,
                                  {block, row & 0xffffffff, state.offset & 0xffffffff,
                                   ((row >> 32) & 0xffff) | ((state.offset >> 32) & 0xffff) << 16},
                                  state.seed);
  return double(words[std::size_t(i / 2)] >> (i % 2 * 16) & 0xffff);
}

// Column 8 q + i of a row has number i of block q as the upper half and that of block 2^31 + q as the lower half of 32
// bits; a value is dropped if these, as a fraction of 2^32, are below p.
inline bool is_dropped(double p, RandomState const& state, std::uint64_t row, int column) {
  auto const block = std::uint64_t(column / 8);
  double const upper = random_number(state, row, block, column % 8),
               lower = random_number(state, row, block + (std::uint64_t(1) << 31), column % 8);
  return upper * 0x1p-16 + lower * 0x1p-32 < p;
}

// dropout(x), for rows of `columns` values. NaNs and infinities are dropped like all others.
inline std::vector<double> dropped(std::vector<double> x, int columns, double p, RandomState const& state) {
  for (std::size_t i = 0; i < x.size() && p > 0; ++i)
    x[i] = is_dropped(p, state, i / columns, int(i % columns)) ? 0 : x[i] / (1 - p);
  return x;
}

}  // namespace kfuse::test

#endif
