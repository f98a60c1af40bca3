// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: Philox4x32 (Salmon, Moraes, Dror, Shaw 2011). A number depends on its seed and its
// place in the stream alone, so every lane makes its own, and again when it needs it again.
#ifndef KFUSE_CORE_RANDOM_HPP
#define KFUSE_CORE_RANDOM_HPP

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>

namespace kfuse {

struct Philox {
  std::uint32_t word[4];

  KOKKOS_FUNCTION std::uint32_t operator[](int i) const { return word[i]; }
  // The same for an index that the compiler does not know, without a detour through memory.
  KOKKOS_FUNCTION std::uint32_t at(int i) const {
    return i == 0 ? word[0] : i == 1 ? word[1] : i == 2 ? word[2] : word[3];
  }
};

// Four words for a counter of 128 bits under a key of 64. Seven rounds are the fewest that pass BigCrush, ten leave the
// authors' margin.
template <int rounds = 10>
KOKKOS_FUNCTION Philox philox(Philox counter, std::uint32_t key0, std::uint32_t key1) {
  auto& c = counter.word;
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    std::uint64_t const a = std::uint64_t(0xD2511F53u) * c[0], b = std::uint64_t(0xCD9E8D57u) * c[2];
    std::uint32_t const next[4] = {std::uint32_t(b >> 32) ^ c[1] ^ key0, std::uint32_t(b),
                                   std::uint32_t(a >> 32) ^ c[3] ^ key1, std::uint32_t(a)};
    for (int i = 0; i < 4; ++i) c[i] = next[i];
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// Which random numbers: a stream for each seed, and in it a block for each offset. A call that shall draw new numbers
// is given the next offset. Offsets and rows count up to 2^48.
struct RandomState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

// Block number `block` of a row: four words.
template <int rounds = 10>
KOKKOS_FUNCTION Philox random_block(RandomState const& state, std::ptrdiff_t row, std::uint32_t block) {
  auto const r = std::uint64_t(row);
  Philox const counter{{block, std::uint32_t(r), std::uint32_t(state.offset),
                        std::uint32_t((r >> 32) & 0xffffu) | std::uint32_t(state.offset >> 32) << 16}};
  return philox<rounds>(counter, std::uint32_t(state.seed), std::uint32_t(state.seed >> 32));
}
// The four words for the columns 4 q to 4 q + 3 of a row.
KOKKOS_INLINE_FUNCTION Philox random_quad(RandomState const& state, std::ptrdiff_t row, int quad) {
  return random_block(state, row, std::uint32_t(quad));
}

}  // namespace kfuse

#endif
