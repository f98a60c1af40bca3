// SPDX-License-Identifier: Apache-2.0
// The fragment of AMD's RDNA 3 GPUs, for 16-bit elements: one 16 x 16 x 16 product of a wave of 32.
//
// The instruction's lane map: lane l has of A all of row l % 16, of B all of column l % 16 (so lanes l and l + 16 have
// the same); of the sums column l % 16, and the eight rows 2 i + l / 16.
// It is given b^T and a^T for a and b, so that a lane has every other column of one row of the sums, and gets the rest
// from the lane 16 away when they become an operand.
#ifndef KFUSE_BACKENDS_HIP_WMMA_FRAGMENT_HPP
#define KFUSE_BACKENDS_HIP_WMMA_FRAGMENT_HPP

#include <kfuse/backends/hip/async_copy.hpp>
#include <kfuse/backends/hip/operand.hpp>
#include <kfuse/core/fragment.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <type_traits>

namespace kfuse::hip {

// What the fragment is made of. All lanes of a wave come to each call. A test may put others in their place.
struct WmmaInstructions {
  // sums += A B, each lane with its part of them
  template <class Element>
  KOKKOS_INLINE_FUNCTION static void multiply([[maybe_unused]] float (&sums)[8],
                                              [[maybe_unused]] std::uint32_t const (&a)[8],
                                              [[maybe_unused]] std::uint32_t const (&b)[8]) {
#if defined(__HIP_DEVICE_COMPILE__)
    using Sums = float __attribute__((ext_vector_type(8)));
    Sums const before = __builtin_bit_cast(Sums, sums);
    Sums after;
    if constexpr (std::is_same_v<Element, bf16>) {
      using Operand = short __attribute__((ext_vector_type(16)));
      after = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(Operand, a),
                                                          __builtin_bit_cast(Operand, b), before);
    } else {
      using Operand = _Float16 __attribute__((ext_vector_type(16)));
      after = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(Operand, a), __builtin_bit_cast(Operand, b),
                                                         before);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] = after[i];
#endif
  }

  // The word of the lane 16 away.
  KOKKOS_INLINE_FUNCTION static std::uint32_t exchange(std::uint32_t word) {
#if defined(__HIP_DEVICE_COMPILE__)
    return __builtin_amdgcn_permlanex16(word, word, 0x76543210, 0xfedcba98, false, false);
#else
    return word;
#endif
  }
};

template <class Element_, class Instructions = WmmaInstructions>
struct WmmaFragment {
  using Element = Element_;
  static_assert(impl::in_pairs<Element>, "these products are of bf16 or fp16");
  static constexpr int rows = 16, columns = 16, depth = 16, lanes = 32, own_rows = 1;
  using A = Operand<Element, 16>;
  using B = A;
  struct Sums {
    float value[8] = {};  // of one row, every other column
  };

  int lane;

  KOKKOS_FUNCTION explicit WmmaFragment(int rank) : lane(rank % lanes) {}

  template <class Tile>
  KOKKOS_FUNCTION A load_a(Tile const& tile, int row, int column) const {
    return A::of_row(tile, row + own_row(0), column);
  }
  template <class Tile>
  KOKKOS_FUNCTION B load_b(Tile const& tile, int row, int column) const {
    // Each of two lanes that need the same reads half of it.
    auto const own = Operand<Element, 8>::of_column(tile, row + lane / 16 * 8, column + lane % 16);
    B b;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t const other = Instructions::exchange(own.word[i]);
      b.word[i] = lane < 16 ? own.word[i] : other;
      b.word[i + 4] = lane < 16 ? other : own.word[i];
    }
    return b;
  }
  template <class Tile>
  KOKKOS_FUNCTION B load_b_transposed(Tile const& tile, int row, int column) const {
    return B::of_row(tile, row + lane % 16, column);
  }
  KOKKOS_FUNCTION void multiply_add(Sums& sums, A const& a, B const& b) const {
    Instructions::template multiply<Element>(sums.value, b.word, a.word);
  }

  template <class F>
  KOKKOS_FUNCTION void for_each(Sums& sums, F const& f) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) f(Entry{0, own_row(0), 2 * i + lane / 16}, sums.value[i]);
  }
  KOKKOS_FUNCTION int own_row(int) const {
    return lane % 16;
  }
  template <class Lanes, class Merge>
  KOKKOS_FUNCTION void reduce_rows(Lanes const& team_lanes, float (&x)[own_rows], Merge const& merge) const {
    x[0] = merge(x[0], team_lanes.shuffle_xor(x[0], 16));
  }

  KOKKOS_FUNCTION A as_operand(Sums const& sums) const {
    A a;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Of columns 4 i to 4 i + 3 one lane has the even ones, the other the odd ones.
      std::uint32_t const own = impl::pair_bits<Element>(sums.value[2 * i], sums.value[2 * i + 1]);
      std::uint32_t const other = Instructions::exchange(own);
      std::uint32_t const even = lane < 16 ? own : other, odd = lane < 16 ? other : own;
      a.word[2 * i] = (even & 0xffff) | odd << 16;
      a.word[2 * i + 1] = even >> 16 | (odd & 0xffff0000);
    }
    return a;
  }
  // Of two lanes that have the same row, one writes each half.
  template <class Tile>
  KOKKOS_FUNCTION void store(Sums const& sums, Tile const& tile, int row, int column) const {
    A const a = as_operand(sums);
    Operand<Element, 8> half;
#pragma unroll
    for (int i = 0; i < 4; ++i) half.word[i] = lane < 16 ? a.word[i] : a.word[i + 4];
    half.to_row(tile, row + own_row(0), column + lane / 16 * 8);
  }
};

// 64 KiB of team memory hold 16 rows of each of eight waves, and 16 keys and values twice. No wave spills.
template <class Instructions = WmmaInstructions, class Copy = AsyncCopy>
struct WmmaUnit {
  static constexpr bool is_hardware = true;
  static constexpr int lane_groups = 8, row_blocks = 1, tile_keys = 16;
  template <class Element>
  using Fragment = WmmaFragment<Element, Instructions>;
  using AsyncCopy = Copy;
};

}  // namespace kfuse::hip

#endif
