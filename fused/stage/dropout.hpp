// SPDX-License-Identifier: Apache-2.0
// dropout: drops each value with probability p, and scales those kept by 1 / (1 - p).
//
// Whether a value is dropped depends on p, seed, offset, row and column alone: not on the kernel, the device, or what
// else has run. p = 0 changes nothing, p = 1 leaves exact zeros whatever was there.
//
// A number of 32 bits decides, whose upper half is enough but for one value in 65536: so a block of random words, of
// seven Philox rounds, decides on eight values, and the lower halves are in a block of their own, made where one is
// asked for. (With ten rounds and a word a value, the numbers take about as long as the values' bytes on an H200.)
#ifndef KFUSE_FUSED_STAGE_DROPOUT_HPP
#define KFUSE_FUSED_STAGE_DROPOUT_HPP

#include <kfuse/core/chain.hpp>
#include <kfuse/core/random_source.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

namespace kfuse {

template <class Memory = void>
struct Dropout {
  using stage = ElementStage;
  using memory_space = Memory;
  static constexpr int flops = 1;
  static constexpr bool drawn = true;
  static constexpr int extra_registers = 24;  // with fewer, a load and a store beside it spill (H200)

  double p;
  RandomSource random;
  // A number up to the first drops its value, and what is kept is multiplied by the second: not for kernels to divide.
  std::uint32_t highest_dropped;
  double factor;

  Dropout(double probability, RandomSource const& source)
      : p(probability),
        random(source),
        highest_dropped(p > 0 && p <= 1 ? std::uint32_t(std::max(std::ceil(p * 0x1p32), 1.0) - 1) : 0),
        factor(1 / (1 - p)) {}

  void check(std::string_view where, Shape) const {
    impl::check(p >= 0 && p <= 1, where, [&] {
      return "dropout: the probability to drop a value must lie in [0, 1], and is " + impl::number_text(p) +
             "; choose 0 to drop nothing";
    });
  }
  // Is the value at this place dropped?
  KOKKOS_FUNCTION bool drops(RandomState const& state, std::ptrdiff_t row, int column) const {
    Philox const upper = random_block<7>(state, row, block_of(column)),
                 lower = random_block<7>(state, row, block_of(column) | lower_halves);
    return p > 0 && (half_of(upper, column % 8) << 16 | half_of(lower, column % 8)) <= highest_dropped;
  }
  // Which values of a pack are dropped: a bit for each.
  template <class X>
  KOKKOS_FUNCTION std::uint32_t fetch(Place at) const {
    static_assert(8 % X::width == 0, "kfuse: eight values share a block of random words, and no pack has more");
    if (p == 0) return 0;
    RandomState const state = random();
    Philox upper = random_block<7>(state, at.row, block_of(at.column));
    if (has_half(upper, limit())) decide(upper, state, at);
    // Below it a value is dropped, now that none is at the limit. Shifted, upper halves are compared where they are.
    std::uint32_t const bound = std::uint32_t(limit() + (limit() < 0xffffu)) << 16;
    int const first = X::width == 8 ? 0 : at.column % 8;
    std::uint32_t dropped = 0;
#pragma unroll
    for (int i = 0; i < X::width; ++i) {
      std::uint32_t const word = upper.at((first + i) / 2);
      if (((first + i) % 2 == 0 ? word << 16 : word) < bound) dropped |= 1u << i;
    }
    return dropped;
  }
  template <class X>
  KOKKOS_FUNCTION void take(X& x, std::uint32_t dropped, Place) const {
    using Real = typename X::Real;
    Real const scale = Real(factor);
#pragma unroll
    for (int i = 0; i < X::width; ++i) x[i] = (dropped & 1u << i) != 0 ? Real(0) : x[i] * scale;
  }

 private:
  static constexpr std::uint32_t lower_halves = 1u << 31;

  KOKKOS_FUNCTION static std::uint32_t block_of(int column) {
    return std::uint32_t(column) / 8;
  }
  KOKKOS_FUNCTION std::uint32_t limit() const {
    return highest_dropped >> 16;
  }
  // Number i of the eight that a block holds.
  KOKKOS_FUNCTION static std::uint32_t half_of(Philox const& block, int i) {
    std::uint32_t const word = block.at(i / 2);
    return i % 2 == 0 ? word & 0xffffu : word >> 16;
  }
  // Is one of the halves `half`? May say so where one is half + 1 (Mycroft's test for a zero).
  KOKKOS_FUNCTION static bool has_half(Philox const& block, std::uint32_t half) {
    std::uint32_t found = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      std::uint32_t const zero = block[w] ^ (half << 16 | half);
      found |= (zero - 0x10001u) & ~zero;
    }
    return (found & 0x80008000u) != 0;
  }
  // Moves the halves at the limit to the side where the lower halves put them.
  KOKKOS_FUNCTION void decide(Philox& upper, RandomState const& state, Place at) const {
    Philox const lower = random_block<7>(state, at.row, block_of(at.column) | lower_halves);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      std::uint32_t const here = i % 2 == 0 ? 0xffffu : 0xffff0000u;
      std::uint32_t& word = upper.word[i / 2];
      if (half_of(upper, i) == limit())
        word = half_of(lower, i) <= (highest_dropped & 0xffffu) ? word & ~here : word | here;
    }
  }
};

inline auto dropout(double p, RandomState const& state) {
  return Dropout<>{p, state};
}

// The state is read when the kernel runs: change it between replays to draw new numbers.
template <class View>
requires Kokkos::is_view_v<View>
auto dropout(double p, View const& state) {
  return Dropout<typename View::memory_space>{p, state};
}

}  // namespace kfuse

#endif
