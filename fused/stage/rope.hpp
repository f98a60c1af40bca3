// SPDX-License-Identifier: Apache-2.0
// rope: rotary position embedding (Su et al. 2021). Of each head's first `rotary` columns, pair i is rotated by the
// angle position * frequency(i):
//   y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin
// The pairs are the columns (i, i + rotary / 2), as Hugging Face has them, or (2 i, 2 i + 1). The other columns stay.
//
// Both products are rounded, and then their sum (backend::add): of two products, compilers may join either with it.
//
// Sines and cosines come from a table (rope_table.hpp), made once in double. A position outside of it makes NaN of what
// is rotated.
#ifndef KFUSE_FUSED_STAGE_ROPE_HPP
#define KFUSE_FUSED_STAGE_ROPE_HPP

#include <kfuse/core/data_status.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>

namespace kfuse {

enum class RopePairs { half, interleaved };

struct RopeOptions {
  int head_dim = 0;
  int rotary_dim = 0;  // 0: all of head_dim
  int columns = 0;     // only heads in the first so many columns are rotated; 0: all
  RopePairs pairs = RopePairs::half;
  DataStatus status = {};  // raised at positions outside the table
};

namespace impl {

// What is read of a table and of positions.
template <class TableElement>
std::array<Span, 2> rope_spans(Tensor<TableElement const, 2> const& table, Tensor<int const, 1> const& positions) {
  Span t = span_of(table), p = span_of(positions);
  t.moved = std::min<std::ptrdiff_t>(positions.extent(0), table.extent(0)) * t.row_bytes;
  p.element_bytes = 0;
  return {t, p};
}

inline void check_rotary(std::string_view where, int rotary, int head_dim) {
  check(rotary > 0 && rotary % 2 == 0 && rotary <= head_dim, where, [&] {
    return "rope: rotary_dim must be even, positive and at most head_dim (pairs of a head's columns are turned), and "
           "is " +
           std::to_string(rotary) + " of " + std::to_string(head_dim) + "; choose 0 for all of them";
  });
}

}  // namespace impl

template <class TableElement, class Memory = void>
struct Rope {
  using stage = PairStage;
  using memory_space = Memory;
  static constexpr int flops = 3;
  static constexpr int extra_registers = 40;

  Tensor<TableElement const, 2> table;  // [positions, rotary]: cosines, then sines
  Tensor<int const, 1> positions;       // [rows]
  int head_dim, rotary, rotated_columns;
  bool interleaved;
  DataStatus status;

  auto reads() const { return impl::rope_spans(table, positions); }
  int granularity() const { return std::gcd(head_dim, std::gcd(rotated_columns, interleaved ? rotary : rotary / 2)); }
  void check(std::string_view where, Shape shape) const {
    impl::check(head_dim > 0 && shape.columns % head_dim == 0 && rotated_columns % head_dim == 0, where, [&] {
      return "rope: " + std::to_string(shape.columns) + " columns, and the " + std::to_string(rotated_columns) +
             " to be turned, are not whole heads of " + std::to_string(head_dim) + "; give it head_dim and whole heads";
    });
    impl::check_rotary(where, rotary, head_dim);
    impl::check(table.extent(1) == rotary, where, [&] {
      return impl::name_of(table) + ": " + impl::shape_text(table) + " is not [positions, rotary_dim] for the " +
             std::to_string(rotary) +
             " columns that are turned; give it one of rope_table(...) of that rotary_dim, cosines and then sines";
    });
    impl::check(positions.extent(0) == shape.rows, where, [&] {
      return impl::name_of(positions) + ": has " + std::to_string(positions.extent(0)) + " entries for " +
             impl::rows_text(shape) + "; give it one position for each row";
    });
  }

  ProductPairs product_pairs(int) const { return {interleaved ? 0 : rotary / 2, head_dim}; }
  template <int width>
  KOKKOS_FUNCTION Place partner(Place at) const {
    int const c = at.column % head_dim, half = rotary / 2;
    if (at.column >= rotated_columns || c >= rotary || (interleaved && width > 1)) return at;
    if (interleaved) return {at.row, c % 2 == 0 ? at.column + 1 : at.column - 1};
    return {at.row, c < half ? at.column + half : at.column - half};
  }

  template <class X>
  KOKKOS_FUNCTION void apply(X& x, X const& other, Place at) const {
    using Real = typename X::Real;
    int const c = at.column % head_dim, half = rotary / 2;
    if (at.column >= rotated_columns || c >= rotary) return;
    int const position = positions(at.row);
    if (position < 0 || position >= table.extent(0)) {  // beyond the table: not a number, and nothing is read
      status.raise(DataFault::position);
      for (auto& v : x) v = Kokkos::Experimental::quiet_NaN_v<Real>;
    } else if (interleaved) {
      X const old = x;
      for (int i = 0; i < X::width; ++i) {
        int const pair = (c + i) / 2;
        Real const cosine = to_real(table(position, pair)), sine = to_real(table(position, half + pair));
        Real const second = X::width > 1 ? old[(i ^ 1) % X::width] : other[i];
        x[i] = backend::add(old[i] * cosine, ((c + i) % 2 == 0 ? -second : second) * sine);
      }
    } else {
      X cosine, sine;
      int const pair = c < half ? c : c - half;
      read(table.at(position, pair), cosine);
      read(table.at(position, half + pair), sine);
      for (int i = 0; i < X::width; ++i)
        x[i] = backend::add(x[i] * cosine[i], (c < half ? -other[i] : other[i]) * sine[i]);
    }
  }
};

// table: [positions, rotary_dim], as rope_table.hpp makes it; positions: int, [rows].
// The chain must not run in place: a value's partner would be overwritten before it is read.
template <TensorLike T, TensorLike P>
auto rope(T const& table, P const& positions, RopeOptions const& options) {
  auto const t = impl::tensor<2>(table, "kfuse", "rope: table");
  auto const p = impl::tensor<1>(positions, "kfuse", "rope: positions");
  impl::check_one_of(options.pairs, RopePairs::interleaved, "kfuse", "rope: options.pairs");
  return Rope<impl::ElementOf<T>, impl::MemoriesOf<T, P>>{
      t,
      p,
      options.head_dim,
      options.rotary_dim != 0 ? options.rotary_dim : options.head_dim,
      options.columns > 0 || options.head_dim <= 0
          ? options.columns
          : std::numeric_limits<int>::max() / options.head_dim * options.head_dim,
      options.pairs == RopePairs::interleaved,
      options.status};
}

}  // namespace kfuse

#endif
