// SPDX-License-Identifier: Apache-2.0
// The fragment in plain loops: one lane holds all of it. It computes what the GPUs' fragments compute.
#ifndef KFUSE_BACKENDS_HOST_FRAGMENT_HPP
#define KFUSE_BACKENDS_HOST_FRAGMENT_HPP

#include <kfuse/backends/host/async_copy.hpp>
#include <kfuse/core/fragment.hpp>

#include <Kokkos_Core.hpp>

namespace kfuse::host {

template <class Element_>
struct Fragment {
  using Element = Element_;
  static constexpr int rows = 16, columns = 16, depth = 16, lanes = 1, own_rows = rows;
  struct A {
    float value[rows][depth];
  };
  struct B {
    float value[depth][columns];
  };
  struct Sums {
    float value[rows][columns] = {};
  };

  KOKKOS_FUNCTION explicit Fragment(int) {}

  template <class Tile>
  KOKKOS_FUNCTION A load_a(Tile const& tile, int row, int column) const {
    A a;
    for (int i = 0; i < rows; ++i)
      for (int k = 0; k < depth; ++k) a.value[i][k] = to_real(*tile.at(row + i, column + k));
    return a;
  }
  template <class Tile>
  KOKKOS_FUNCTION B load_b(Tile const& tile, int row, int column) const {
    B b;
    for (int k = 0; k < depth; ++k)
      for (int j = 0; j < columns; ++j) b.value[k][j] = to_real(*tile.at(row + k, column + j));
    return b;
  }
  template <class Tile>
  KOKKOS_FUNCTION B load_b_transposed(Tile const& tile, int row, int column) const {
    B b;
    for (int k = 0; k < depth; ++k)
      for (int j = 0; j < columns; ++j) b.value[k][j] = to_real(*tile.at(row + j, column + k));
    return b;
  }
  KOKKOS_FUNCTION void multiply_add(Sums& sums, A const& a, B const& b) const {
    for (int i = 0; i < rows; ++i)
      for (int k = 0; k < depth; ++k)
        for (int j = 0; j < columns; ++j) sums.value[i][j] += a.value[i][k] * b.value[k][j];
  }

  template <class F>
  KOKKOS_FUNCTION void for_each(Sums& sums, F const& f) const {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) f(Entry{i, i, j}, sums.value[i][j]);
  }
  KOKKOS_FUNCTION int own_row(int i) const { return i; }
  template <class Lanes, class Merge>
  KOKKOS_FUNCTION void reduce_rows(Lanes const&, float (&)[own_rows], Merge const&) const {}

  KOKKOS_FUNCTION A as_operand(Sums const& sums) const {
    A a;
    for (int i = 0; i < rows; ++i)
      for (int k = 0; k < depth; ++k) a.value[i][k] = to_real(from_real<Element>(sums.value[i][k]));
    return a;
  }
  template <class Tile>
  KOKKOS_FUNCTION void store(Sums const& sums, Tile const& tile, int row, int column) const {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) *tile.at(row + i, column + j) = from_real<Element>(sums.value[i][j]);
  }
};

// What kernels over tiles are built from.
struct MatrixUnit {
  static constexpr bool is_hardware = false;
  static constexpr int lane_groups = 1, row_blocks = 2, tile_keys = 16;
  template <class Element>
  using Fragment = host::Fragment<Element>;
  using AsyncCopy = host::AsyncCopy;
};

}  // namespace kfuse::host

#endif
