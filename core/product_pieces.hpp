// SPDX-License-Identifier: Apache-2.0
// What a lane group makes of a piece of a product's depth: sums [rows, outputs] += x [rows, depth] w^T [depth,
// outputs], of tiles in team memory that have one row of x, or one output of w, in a line.
//
//   Element, Real, Memory      of the operands, of the sums, and the tiles: Tile<Element, depth>
//   lanes                      of a group
//   rows, outputs, depth       of a piece; what a tile has in rows that do not exist harms no other row
//   x_lines                    of a tile of x: `rows`, or more that hold anything
//   multiply(x, w)             adds a piece to the sums, in an order that depends on nothing
//   take(lanes, f)             f(row, output, sum) once for each sum, by one of the lanes; they are zero afterwards
#ifndef KFUSE_CORE_PRODUCT_PIECES_HPP
#define KFUSE_CORE_PRODUCT_PIECES_HPP

#include <kfuse/core/element.hpp>
#include <kfuse/core/fragment.hpp>
#include <kfuse/core/values.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>

namespace kfuse::impl {

// By matrix instructions, which take 16 rows, whatever they hold.
template <class Unit, class Element_, int rows_>
class FragmentPieces {
  using Fragment = typename Unit::template Fragment<Element_>;
  static constexpr int across = 2;  // fragments side by side, which share what is loaded of x

 public:
  using Element = Element_;
  using Real = float;
  static constexpr int lanes = Fragment::lanes, rows = rows_, x_lines = Fragment::rows;
  static constexpr int outputs = across * Fragment::columns, depth = 64;
  static_assert(rows <= x_lines);
  using Memory = Tile<Element, depth>;

  KOKKOS_FUNCTION explicit FragmentPieces(int rank) : fragment_(rank) {}

  KOKKOS_FUNCTION void multiply(Memory const& x, Memory const& w) {
#pragma unroll
    for (int k = 0; k < depth; k += Fragment::depth) {
      auto const a = fragment_.load_a(x, 0, k);
#pragma unroll
      for (int i = 0; i < across; ++i)
        fragment_.multiply_add(sums_[i], a, fragment_.load_b_transposed(w, i * Fragment::columns, k));
    }
  }
  template <class L, class F>
  KOKKOS_FUNCTION void take(L const&, F const& f) {
#pragma unroll
    for (int i = 0; i < across; ++i)
      fragment_.for_each(sums_[i], [&](Entry at, float& sum) {
        if (rows == x_lines || at.row < rows) f(at.row, i * Fragment::columns + at.column, sum);
        sum = 0;
      });
  }

 private:
  Fragment fragment_;
  typename Fragment::Sums sums_[across];
};

// In plain arithmetic: each lane has a share of the depth, chunk by chunk of 16 bytes, and sums of its own. `rows_`
// only says how many rows go at once: the sums are the same.
template <class Element_, int lanes_, int rows_>
class LanePieces {
 public:
  using Element = Element_;
  using Real = kfuse::Real<Element>;
  static constexpr int chunk = 16 / int(sizeof(Element));
  static constexpr int lanes = lanes_, rows = rows_, x_lines = rows, outputs = 4;
  static constexpr int depth = std::max(lanes, 8) * chunk;
  using Memory = Tile<Element, depth>;

  KOKKOS_FUNCTION explicit LanePieces(int rank) : lane_(rank % lanes) {}

  KOKKOS_FUNCTION void multiply(Memory const& x, Memory const& w) {
#pragma unroll
    for (int k = lane_ * chunk; k < depth; k += lanes * chunk) {
      Chunk columns[outputs];
#pragma unroll
      for (int i = 0; i < outputs; ++i) read(w.at(i, k), columns[i]);
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        Chunk row;
        read(x.at(r, k), row);
#pragma unroll
        for (int i = 0; i < outputs; ++i)
#pragma unroll
          for (int c = 0; c < chunk; ++c) sums_[r][i] += row[c] * columns[i][c];
      }
    }
  }
  template <class L, class F>
  KOKKOS_FUNCTION void take(L const& team_lanes, F const& f) {
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
      for (int i = 0; i < outputs; ++i) {
        Real sum = sums_[r][i];
#pragma unroll
        for (int step = lanes / 2; step > 0; step /= 2) sum += team_lanes.shuffle_xor(sum, step);
        if (lane_ == (r * outputs + i) % lanes) f(r, i, sum);
        sums_[r][i] = 0;
      }
  }

 private:
  using Chunk = Values<Real, chunk, Access::wide>;

  int lane_;
  Real sums_[rows][outputs] = {};
};

}  // namespace kfuse::impl

#endif
