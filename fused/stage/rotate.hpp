// SPDX-License-Identifier: Apache-2.0
// rotate_heads: rope (stage/rope.hpp) of the heads of Q and K at once, where they lie or elsewhere.
//
// The columns of this chain are pairs, not values: row t has the pairs of token t's query heads and then of its key
// heads, and one lane reads and writes both values of a pair, so that it may work in place. The columns beyond
// rotary_dim follow two by two, where they have to be copied.
#ifndef KFUSE_FUSED_STAGE_ROTATE_HPP
#define KFUSE_FUSED_STAGE_ROTATE_HPP

#include <kfuse/core/data_status.hpp>
#include <kfuse/core/execute_rows.hpp>
#include <kfuse/fused/stage/load_store.hpp>
#include <kfuse/fused/stage/rope.hpp>

#include <numeric>
#include <string_view>
#include <type_traits>

namespace kfuse {

namespace impl {

// How [tokens, heads, columns] lie: `outer` times, `far` elements apart, `inner` runs of `columns`, `near` apart.
struct HeadRuns {
  int outer, inner, columns;
  std::ptrdiff_t far, near;

  template <class Element>
  explicit HeadRuns(Tensor<Element, 3> const& t) : columns(t.extent(2)) {
    int const o = t.stride(0) >= t.stride(1) || t.extent(1) <= 1 ? 0 : 1, i = 1 - o;
    outer = t.extent(o), inner = t.extent(i);
    far = outer > 1 ? t.stride(o) : 0, near = inner > 1 ? t.stride(i) : columns;
  }
  bool overlap() const { return inner > 1 && near < columns; }
};

template <class Element>
Span span_of_heads(Tensor<Element, 3> const& t) {
  constexpr int size = sizeof(Element);
  HeadRuns const runs(t);
  if (t.empty()) return {};
  if (runs.near != runs.columns && runs.far == runs.inner * runs.near)
    return {
        t.data, std::ptrdiff_t(runs.outer) * runs.inner, std::ptrdiff_t(runs.columns) * size, runs.near * size, size,
        -1};
  return {t.data, runs.outer, ((runs.inner - 1) * runs.near + runs.columns) * size, runs.far * size, size, -1};
}

// The number of columns of which all heads begin at a multiple.
template <class Element>
int head_granularity(Tensor<Element, 3> const& t) {
  std::ptrdiff_t const token = t.extent(0) > 1 ? t.stride(0) : 0, head = t.extent(1) > 1 ? t.stride(1) : 0;
  return int(std::gcd(std::gcd(token, head), std::ptrdiff_t(1) << 20));
}

}  // namespace impl

template <RopePairs kind, class In, class Out, class TableElement, class Memory = void>
struct RotateHeads {
  using stage = ElementStage;
  using element = In;
  using memory_space = Memory;
  static constexpr bool in_place = true;
  static constexpr int flops = 6;
  static constexpr int extra_registers = 40;

  Tensor<In const, 3> q, k;             // [tokens, heads, head_dim]
  Tensor<Out, 3> q_out, k_out;          // the same
  Tensor<TableElement const, 2> table;  // [positions, rotary]: cosines, then sines
  Tensor<int const, 1> positions;       // [tokens]
  int rotary;
  impl::Divisor pairs;  // of a head
  DataStatus status;

  Shape shape() const { return {q.extent(0), (q.extent(1) + k.extent(1)) * int(pairs.divisor)}; }
  auto reads() const {
    auto const [t, p] = impl::rope_spans(table, positions);
    return std::array{impl::span_of_heads(q), impl::span_of_heads(k), t, p};
  }
  auto writes() const { return std::array{impl::span_of_heads(q_out), impl::span_of_heads(k_out)}; }
  // The chain sees to what lies in place; that Q and K do not lie in each other's is seen to here.
  void check(std::string_view where, Shape) const {
    impl::check(!impl::HeadRuns(q_out).overlap() && !impl::HeadRuns(k_out).overlap(), where,
                "the heads of an output overlap (which of them stays would be chance); give it memory of its own");
    auto const [from_q, from_k, t, p] = reads();
    auto const [to_q, to_k] = writes();
    impl::check(!impl::overlap(to_q, to_k), where,
                "the two outputs overlap (which of them stays would be chance); give each memory of its own");
    impl::check(!impl::overlap(to_q, from_k) && !impl::overlap(to_k, from_q), where,
                "the output of q overlaps k, or that of k overlaps q (other lanes would read what is already "
                "overwritten); give the output memory of its own, or exactly that of its input");
  }
  int granularity() const {
    int const heads = std::gcd(std::gcd(impl::head_granularity(q), impl::head_granularity(k)),
                               std::gcd(impl::head_granularity(q_out), impl::head_granularity(k_out)));
    return std::gcd(q.extent(2) % 2 == 0 ? heads : 1, std::gcd(int(pairs.divisor), rotary / 2));
  }

  template <class X>
  KOKKOS_FUNCTION void apply(X&, Place at) const {
    int const head = int(pairs.quotient(unsigned(at.column))), pair = at.column - head * int(pairs.divisor);
    int const key = head - q.extent(1);
    In const* const from = key < 0 ? q.at(at.row, head) : k.at(at.row, key);
    Out* const to = key < 0 ? q_out.at(at.row, head) : k_out.at(at.row, key);
    if (pair < rotary / 2)
      rotate<X>(from, to, pair, positions(at.row));
    else
      copy<2 * X::width, X::access>(from + std::ptrdiff_t(2) * pair, to + std::ptrdiff_t(2) * pair,
                                    q.extent(2) - 2 * pair);
  }

 private:
  template <class X>
  KOKKOS_FUNCTION void rotate(In const* from, Out* to, int pair, int position) const {
    using Real = typename X::Real;
    constexpr int width = X::width;
    X first, second;
    if constexpr (kind == RopePairs::interleaved) {
      Values<Real, 2 * width, X::access> both;
      read(from + std::ptrdiff_t(2) * pair, both);
      for (int i = 0; i < width; ++i) first[i] = both[2 * i], second[i] = both[2 * i + 1];
      turn(first, second, pair, position);
      for (int i = 0; i < width; ++i) both[2 * i] = first[i], both[2 * i + 1] = second[i];
      write(to + std::ptrdiff_t(2) * pair, both);
    } else {
      int const half = rotary / 2;
      read(from + pair, first);
      read(from + pair + half, second);
      turn(first, second, pair, position);
      write(to + (pair + half), second);  // in this order and by this sum nvcc makes one access of each
      write(to + pair, first);
    }
  }

  // x1 and x2 turned; where the position is beyond the table, not a number: then some other row is read.
  template <class X>
  KOKKOS_FUNCTION void turn(X& first, X& second, int pair, int position) const {
    using Real = typename X::Real;
    bool const known = position >= 0 && position < table.extent(0);
    TableElement const* const row = table.at(known ? position : 0, pair);
    X cosine, sine;
    read(row, cosine);
    read(row + rotary / 2, sine);
    if (!known) {
      status.raise(DataFault::position);
      for (auto& c : cosine) c = Kokkos::Experimental::quiet_NaN_v<Real>;
    }
    for (int i = 0; i < X::width; ++i) {
      Real const x1 = first[i], x2 = second[i];
      first[i] = x1 * cosine[i] - x2 * sine[i];
      second[i] = x2 * cosine[i] + x1 * sine[i];
    }
  }

  // Of `left` columns the first n, bit by bit where the type stays.
  template <int n, Access access>
  KOKKOS_FUNCTION void copy(In const* from, Out* to, int left) const {
    if constexpr (!std::is_same_v<In, Out>) {
      for (int i = 0; i < n && i < left; ++i) to[i] = from_real<Out>(to_real(from[i]));
    } else if constexpr (access == Access::wide) {
      using Words = impl::WordsOf<In, n>;
      for (int c = 0; c < Words::chunks; ++c)
        reinterpret_cast<typename Words::Chunk*>(to)[c] = reinterpret_cast<typename Words::Chunk const*>(from)[c];
    } else {
      for (int i = 0; i < n && i < left; ++i) to[i] = from[i];
    }
  }
};

}  // namespace kfuse

#endif
