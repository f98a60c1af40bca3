// SPDX-License-Identifier: Apache-2.0
// The fragment of NVIDIA GPUs from Ampere on, for 16-bit elements: two m16n8k16 products of one warp, side by side.
//
// The instructions' lane map: with g = lane / 4 and t = 2 (lane % 4), a lane has of each 8 x 8 block the two entries
// (g, t) and (g, t + 1). Of A the blocks come in the order (0, 0), (8, 0), (0, 8), (8, 8) of (row, depth); of B in the
// order (0, 0), (8, 0), (0, 8), (8, 8) of (depth, column), each transposed; of the sums as two A-like halves.
#ifndef KFUSE_BACKENDS_CUDA_FRAGMENT_HPP
#define KFUSE_BACKENDS_CUDA_FRAGMENT_HPP

#include <kfuse/backends/cuda/async_copy.hpp>
#include <kfuse/core/fragment.hpp>
#include <kfuse/core/values.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <type_traits>

namespace kfuse::cuda {

enum class Transposed { no, yes };

// What the fragment is made of. All lanes of a warp come to each call. A test may put others in their place.
struct MatrixInstructions {
  using Address = unsigned;  // in team memory

  KOKKOS_INLINE_FUNCTION static Address address(void const* p) { return team_address(p); }

  // Four 8 x 8 blocks of 16-bit elements; lane l gives the address of row l % 8 of block l / 8.
  template <Transposed transposed>
  KOKKOS_INLINE_FUNCTION static void load_blocks([[maybe_unused]] std::uint32_t (&word)[4],
                                                 [[maybe_unused]] Address address) {
#if defined(__CUDA_ARCH__)
    if constexpr (transposed == Transposed::yes)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                   : "r"(address)
                   : "memory");
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                   : "r"(address)
                   : "memory");
#endif
  }

  // sums [16, 8] += a [16, 16] b [16, 8]
  template <class Element>
  KOKKOS_INLINE_FUNCTION static void multiply([[maybe_unused]] float* sums, [[maybe_unused]] std::uint32_t const* a,
                                              [[maybe_unused]] std::uint32_t const* b) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<Element, bf16>)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
  }
};

template <class Element_, class Instructions = MatrixInstructions>
struct Fragment {
  using Element = Element_;
  static_assert(impl::in_pairs<Element>, "these products are of bf16 or fp16");
  static constexpr int rows = 16, columns = 16, depth = 16, lanes = 32, own_rows = 2;
  struct A {
    std::uint32_t word[4];
  };
  struct B {
    std::uint32_t word[4];
  };
  struct Sums {
    float value[8] = {};  // [half of the columns][row, row + 8][column, column + 1]
  };

  int lane;

  KOKKOS_FUNCTION explicit Fragment(int rank) : lane(rank % lanes) {}

  template <class Tile>
  KOKKOS_FUNCTION A load_a(Tile const& tile, int row, int column) const {
    A a;
    Instructions::template load_blocks<Transposed::no>(a.word, address(tile, lane % 16, lane / 16 * 8, row, column));
    return a;
  }
  template <class Tile>
  KOKKOS_FUNCTION B load_b(Tile const& tile, int row, int column) const {
    B b;
    Instructions::template load_blocks<Transposed::yes>(b.word, address(tile, lane % 16, lane / 16 * 8, row, column));
    return b;
  }
  template <class Tile>
  KOKKOS_FUNCTION B load_b_transposed(Tile const& tile, int row, int column) const {
    B b;
    Instructions::template load_blocks<Transposed::no>(
        b.word, address(tile, lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8, row, column));
    return b;
  }
  KOKKOS_FUNCTION void multiply_add(Sums& sums, A const& a, B const& b) const {
    Instructions::template multiply<Element>(sums.value, a.word, b.word);
    Instructions::template multiply<Element>(sums.value + 4, a.word, b.word + 2);
  }

  template <class F>
  KOKKOS_FUNCTION void for_each(Sums& sums, F const& f) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) f(Entry{i / 2 % 2, own_row(i / 2 % 2), column(i)}, sums.value[i]);
  }
  KOKKOS_FUNCTION int own_row(int i) const {
    return lane / 4 + 8 * i;
  }
  template <class Lanes, class Merge>
  KOKKOS_FUNCTION void reduce_rows(Lanes const& team_lanes, float (&x)[own_rows], Merge const& merge) const {
#pragma unroll
    for (float& value : x) {
      value = merge(value, team_lanes.shuffle_xor(value, 1));
      value = merge(value, team_lanes.shuffle_xor(value, 2));
    }
  }

  KOKKOS_FUNCTION A as_operand(Sums const& sums) const {
    A a;
#pragma unroll
    for (int i = 0; i < 4; ++i) a.word[i] = impl::pair_bits<Element>(sums.value[2 * i], sums.value[2 * i + 1]);
    return a;
  }
  template <class Tile>
  KOKKOS_FUNCTION void store(Sums const& sums, Tile const& tile, int row, int first_column) const {
#pragma unroll
    for (int i = 0; i < 8; i += 2)
      *reinterpret_cast<std::uint32_t*>(tile.at(row + own_row(i / 2 % 2), first_column + column(i))) =
          impl::pair_bits<Element>(sums.value[i], sums.value[i + 1]);
  }

 private:
  KOKKOS_FUNCTION int column(int i) const {
    return i / 4 * 8 + lane % 4 * 2 + i % 2;
  }

  // The address of tile(row + lane_row, column + lane_column). The lane's part is the same for all calls, and what
  // differs is known to the compiler: a tile is aligned to its pitch, so columns can be exchanged there.
  template <class Tile>
  KOKKOS_FUNCTION static auto address(Tile const& tile, int lane_row, int lane_column, int row, int column) {
    using Address = typename Instructions::Address;
    Address const own = Instructions::address(tile.data) + Address(Tile::offset(lane_row, lane_column));
    return (own ^ Address(column * int(sizeof(Element)))) + Address(row * Tile::pitch);
  }
};

template <class Instructions = MatrixInstructions, class Copy = cuda::AsyncCopy>
struct MatrixUnit {
  static constexpr bool is_hardware = true;
  static constexpr int lane_groups = 4, row_blocks = 2, tile_keys = 64;
  template <class Element>
  using Fragment = cuda::Fragment<Element, Instructions>;
  using AsyncCopy = Copy;
};

}  // namespace kfuse::cuda

#endif
