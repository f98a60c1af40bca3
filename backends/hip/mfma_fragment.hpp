// SPDX-License-Identifier: Apache-2.0
// The fragment of AMD's CDNA GPUs from MI200 on, for 16-bit elements: one 16 x 16 x 16 product of a wave of 64.
//
// The instruction's lane map: lane l has of A row l % 16, of B column l % 16, and of both the four entries from
// 4 (l / 16) on along the depth; of the sums column l % 16, and the four rows from 4 (l / 16) on.
// It is given b^T and a^T for a and b, so that a lane has four columns of one row of the sums, and what it needs of
// them as an operand. (MI200 takes numbers below the least normal one for zeros.)
#ifndef KFUSE_BACKENDS_HIP_MFMA_FRAGMENT_HPP
#define KFUSE_BACKENDS_HIP_MFMA_FRAGMENT_HPP

#include <kfuse/backends/hip/async_copy.hpp>
#include <kfuse/backends/hip/operand.hpp>
#include <kfuse/core/fragment.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <type_traits>

namespace kfuse::hip {

// What the fragment is made of. All lanes of a wave come to each call. A test may put others in their place.
struct MfmaInstructions {
  // sums += A B, each lane with its part of them
  template <class Element>
  KOKKOS_INLINE_FUNCTION static void multiply([[maybe_unused]] float (&sums)[4],
                                              [[maybe_unused]] std::uint32_t const (&a)[2],
                                              [[maybe_unused]] std::uint32_t const (&b)[2]) {
#if defined(__HIP_DEVICE_COMPILE__)
    using Sums = float __attribute__((ext_vector_type(4)));
    Sums const before = __builtin_bit_cast(Sums, sums);
    Sums after;
    if constexpr (std::is_same_v<Element, bf16>) {
      using Operand = short __attribute__((ext_vector_type(4)));
      after = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(Operand, a), __builtin_bit_cast(Operand, b),
                                                        before, 0, 0, 0);
    } else {
      using Operand = _Float16 __attribute__((ext_vector_type(4)));
      after = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(Operand, a), __builtin_bit_cast(Operand, b),
                                                    before, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = after[i];
#endif
  }
};

template <class Element_, class Instructions = MfmaInstructions>
struct MfmaFragment {
  using Element = Element_;
  static_assert(impl::in_pairs<Element>, "these products are of bf16 or fp16");
  static constexpr int rows = 16, columns = 16, depth = 16, lanes = 64, own_rows = 1;
  using A = Operand<Element, 4>;
  using B = A;
  struct Sums {
    float value[4] = {};  // of one row
  };

  int lane;

  KOKKOS_FUNCTION explicit MfmaFragment(int rank) : lane(rank % lanes) {}

  template <class Tile>
  KOKKOS_FUNCTION A load_a(Tile const& tile, int row, int column) const {
    return A::of_row(tile, row + own_row(0), column + first());
  }
  template <class Tile>
  KOKKOS_FUNCTION B load_b(Tile const& tile, int row, int column) const {
    return B::of_column(tile, row + first(), column + lane % 16);
  }
  template <class Tile>
  KOKKOS_FUNCTION B load_b_transposed(Tile const& tile, int row, int column) const {
    return B::of_row(tile, row + lane % 16, column + first());
  }
  KOKKOS_FUNCTION void multiply_add(Sums& sums, A const& a, B const& b) const {
    Instructions::template multiply<Element>(sums.value, b.word, a.word);
  }

  template <class F>
  KOKKOS_FUNCTION void for_each(Sums& sums, F const& f) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) f(Entry{0, own_row(0), first() + i}, sums.value[i]);
  }
  KOKKOS_FUNCTION int own_row(int) const {
    return lane % 16;
  }
  template <class Lanes, class Merge>
  KOKKOS_FUNCTION void reduce_rows(Lanes const& team_lanes, float (&x)[own_rows], Merge const& merge) const {
    x[0] = merge(x[0], team_lanes.shuffle_xor(x[0], 16));
    x[0] = merge(x[0], team_lanes.shuffle_xor(x[0], 32));
  }

  KOKKOS_FUNCTION A as_operand(Sums const& sums) const {
    return {{impl::pair_bits<Element>(sums.value[0], sums.value[1]),
             impl::pair_bits<Element>(sums.value[2], sums.value[3])}};
  }
  template <class Tile>
  KOKKOS_FUNCTION void store(Sums const& sums, Tile const& tile, int row, int column) const {
    as_operand(sums).to_row(tile, row + own_row(0), column + first());
  }

 private:
  // Where this lane's entries begin: of an operand along the depth, of the sums along the row.
  KOKKOS_FUNCTION int first() const {
    return lane / 16 * 4;
  }
};

// 64 KiB of team memory hold 16 rows of each of eight waves, and 16 keys and values twice. As copies are not
// asynchronous, each of the four SIMD units of a compute unit has a wave to go on with while another one waits.
template <class Instructions = MfmaInstructions, class Copy = AsyncCopy>
struct MfmaUnit {
  static constexpr bool is_hardware = true;
  static constexpr int lane_groups = 8, row_blocks = 1, tile_keys = 16;
  template <class Element>
  using Fragment = MfmaFragment<Element, Instructions>;
  using AsyncCopy = Copy;
};

}  // namespace kfuse::hip

#endif
