// SPDX-License-Identifier: Apache-2.0
// The product that runs where no library does: any element type, size, stride and alignment, in plain arithmetic. It is
// what 16-bit products on the host are computed by; on GPUs, where it is right but not fast, what libraries refuse.
//
//   d(i, r, c) = epilogue(sum over k of a(i, r, k) b(i, k, c)),  rounded once
//
// A team makes a tile of d. Blocks of the depth go through team memory, where they are kept as Real; a lane keeps the
// sums of small blocks of the tile in registers (one on GPUs, all of them on the host). Each sum is taken in the order
// of k, so a row's bits depend on nothing but the row and b. The tile then goes through team memory to an element
// stage, the epilogue, which sees Place{i * rows + r, c}.
#ifndef KFUSE_CORE_PRODUCT_KERNEL_HPP
#define KFUSE_CORE_PRODUCT_KERNEL_HPP

#include <kfuse/core/chain.hpp>
#include <kfuse/core/launch.hpp>
#include <kfuse/core/product.hpp>
#include <kfuse/core/tensor.hpp>
#include <kfuse/core/values.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace kfuse::impl {

template <class Element, int lanes, Stage Epilogue>
struct ProductKernel {
  using Real = kfuse::Real<Element>;
  static constexpr int threads = lanes, registers = sizeof(Real) == 8 ? 128 : 64;
  static constexpr int tile = 64, depth_block = 32;
  static constexpr int block_rows = 4, block_columns = 8, blocks_across = tile / block_columns;
  static constexpr int blocks_per_lane = tile / block_rows * blocks_across / lanes;
  static constexpr int pitch = tile + 1;  // of team memory: a line down meets all banks
  static constexpr std::size_t scratch_bytes = sizeof(Real) * pitch * std::max(2 * depth_block, tile);

  Tensor<Element const, 3> a;                // [batch, rows, depth]
  Tensor<Element const, 3> b;                // [batch, depth, columns] or, transposed, [batch, columns, depth]
  std::ptrdiff_t b_column_stride, b_stride;  // of b, along the columns of d and along the depth
  Tensor<Element, 3> d;                      // [batch, rows, columns]
  Epilogue epilogue;

  KOKKOS_FUNCTION static int tiles(int extent) { return (extent + tile - 1) / tile; }

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const team_lanes(team);
    auto* const memory = static_cast<Real*>(team_lanes.scratch(scratch_bytes));
    int const across = tiles(d.extent(2)), down = tiles(d.extent(1));
    int const i = team.league_rank() / across / down;
    int const row = team.league_rank() / across % down * tile, column = team.league_rank() % across * tile;
    int const rows = at_most(tile, d.extent(1) - row), columns = at_most(tile, d.extent(2) - column);
    Real sums[blocks_per_lane][block_rows][block_columns] = {};

    Real* const a_block = memory;
    Real* const b_block = memory + depth_block * pitch;
    for (int k = 0; k < a.extent(2); k += depth_block) {
      int const depth = at_most(depth_block, a.extent(2) - k);
      bring(team_lanes, a.at(i, row, k), a.stride(1), 1, rows, depth, a_block);
      bring(team_lanes, b.at(i) + column * b_column_stride + k * b_stride, b_column_stride, b_stride, columns, depth,
            b_block);
      team_lanes.barrier();  // the blocks of a and b are there
      each_block(team_lanes, rows, columns,
                 [&](int own, int r, int c) { multiply_add(a_block + r, b_block + c, depth, sums[own]); });
      team_lanes.barrier();  // and have been read
    }

    each_block(team_lanes, rows, columns, [&](int own, int r, int c) {
#pragma unroll
      for (int e = 0; e < block_rows * block_columns; ++e)
        memory[(r + e / block_columns) * pitch + c + e % block_columns] =
            sums[own][e / block_columns][e % block_columns];
    });
    team_lanes.barrier();  // the tile is there
    for (int e = team_lanes.rank(); e < rows * tile; e += team_lanes.size()) {
      int const r = e / tile, c = e % tile;
      if (c >= columns) continue;
      Values<Real, 1, Access::single> x{{memory[r * pitch + c]}};
      epilogue.apply(x, Place{std::ptrdiff_t(i) * d.extent(1) + row + r, column + c});
      write(d.at(i, row + r, column + c), x);
    }
  }

 private:
  KOKKOS_FUNCTION static int at_most(int limit, int n) {
    return n < limit ? n : limit;
  }

  // to[k][line] = from(line, k), with zeros for the lines that a block has beyond `lines`. Neighbouring lanes take what
  // lies together in memory.
  template <class L>
  KOKKOS_FUNCTION static void bring(L const& team_lanes, Element const* from, std::ptrdiff_t line_stride,
                                    std::ptrdiff_t stride, int lines, int depth, Real* to) {
    int const filled = (lines + block_columns - 1) / block_columns * block_columns;
    for (int e = team_lanes.rank(); e < tile * depth_block; e += team_lanes.size()) {
      int const line = stride == 1 ? e / depth_block : e % tile, k = stride == 1 ? e % depth_block : e / tile;
      if (line >= filled || k >= depth) continue;
      to[k * pitch + line] = line < lines ? to_real(from[line * line_stride + k * stride]) : Real(0);
    }
  }

  // visit(number, row, column) for this lane's blocks that have something of the tile.
  template <class L, class F>
  KOKKOS_FUNCTION static void each_block(L const& team_lanes, int rows, int columns, F const& visit) {
#pragma unroll
    for (int own = 0; own < blocks_per_lane; ++own) {
      int const block = team_lanes.rank() + own * lanes;
      int const r = block / blocks_across * block_rows, c = block % blocks_across * block_columns;
      if (r < rows && c < columns) visit(own, r, c);
    }
  }

  KOKKOS_FUNCTION static void multiply_add(Real const* a_lines, Real const* b_lines, int depth,
                                           Real (&sums)[block_rows][block_columns]) {
    Real sum[block_rows][block_columns];
#pragma unroll
    for (int e = 0; e < block_rows * block_columns; ++e)
      sum[e / block_columns][e % block_columns] = sums[e / block_columns][e % block_columns];
    for (int k = 0; k < depth; ++k) {
#pragma unroll
      for (int r = 0; r < block_rows; ++r)
#pragma unroll
        for (int c = 0; c < block_columns; ++c) sum[r][c] += a_lines[k * pitch + r] * b_lines[k * pitch + c];
    }
#pragma unroll
    for (int e = 0; e < block_rows * block_columns; ++e)
      sums[e / block_columns][e % block_columns] = sum[e / block_columns][e % block_columns];
  }
};

// d = epilogue(a b), by ProductKernel. d must be of one or more elements; a depth of zero gives the epilogue of zeros.
template <class Space, class Element, Stage Epilogue>
void launch_product(Space const& space, std::string const& label, Tensor<Element const, 3> const& a,
                    Tensor<Element const, 3> const& b, Transpose transpose_b, Tensor<Element, 3> const& d,
                    Epilogue const& epilogue) {
  using Kernel = ProductKernel<Element, Backend<Space>::is_host ? 1 : 128, Epilogue>;
  bool const transposed = transpose_b == Transpose::yes;
  std::ptrdiff_t const teams = std::ptrdiff_t(d.extent(0)) * Kernel::tiles(d.extent(1)) * Kernel::tiles(d.extent(2));
  launch(space, label, teams, Kernel::scratch_bytes,
         Kernel{a, b, transposed ? b.stride(1) : 1, transposed ? 1 : b.stride(1), d, epilogue});
}

}  // namespace kfuse::impl

#endif
