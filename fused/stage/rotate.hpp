// SPDX-License-Identifier: Apache-2.0
// rotate_heads: rope (stage/rope.hpp) of the heads of Q and K at once, where they lie or elsewhere.
//
// The columns of this chain are pairs, not values: row t has the pairs of token t's query heads and then of its key
// heads, and one lane reads and writes both values of a pair, so that it may work in place. The columns beyond
// rotary_dim follow two by two, where they have to be copied.
#ifndef KFUSE_FUSED_STAGE_ROTATE_HPP
#define KFUSE_FUSED_STAGE_ROTATE_HPP

#include <kfuse/core/check_chain.hpp>
#include <kfuse/core/data_status.hpp>
#include <kfuse/core/divisor.hpp>
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
};

template <class Element>
Span span_of_heads(Tensor<Element, 3> const& t) {
  constexpr int size = sizeof(Element);
  HeadRuns const runs(t);
  if (t.empty()) return {};
  if (runs.near != runs.columns && runs.far == runs.inner * runs.near)
    return {t.data,
            std::ptrdiff_t(runs.outer) * runs.inner,
            std::ptrdiff_t(runs.columns) * size,
            runs.near * size,
            size,
            -1,
            t.name};
  return {t.data, runs.outer, ((runs.inner - 1) * runs.near + runs.columns) * size, runs.far * size, size, -1, t.name};
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
  using element = std::conditional_t<std::is_same_v<Out, double>, Out, In>;  // into double: computed in double
  using memory_space = Memory;
  static constexpr bool in_place = true;
  static constexpr int flops = 6;
  static constexpr int extra_registers = 16;

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
    impl::check_lies_apart(q_out, where);
    impl::check_lies_apart(k_out, where);
    auto const [from_q, from_k, t, p] = reads();
    auto const [to_q, to_k] = writes();
    impl::check(!impl::overlap(to_q, to_k), where, [&] {
      return impl::name_of(to_q) + ": overlaps " + impl::name_of(to_k) +
             " (which of them stays would be chance); give each memory of its own";
    });
    auto const check_apart = [&](Span const& to, Span const& from) {
      impl::check(!impl::overlap(to, from), where, [&] {
        return impl::name_of(to) + ": overlaps " + impl::name_of(from) +
               " (other lanes would read what is already overwritten); give it memory of its own, or exactly that of "
               "its input";
      });
    };
    check_apart(to_q, from_k);
    check_apart(to_k, from_q);
  }
  int granularity() const {
    int const heads = std::gcd(std::gcd(impl::head_granularity(q), impl::head_granularity(k)),
                               std::gcd(impl::head_granularity(q_out), impl::head_granularity(k_out)));
    return std::gcd(q.extent(2) % 2 == 0 ? heads : 1, std::gcd(int(pairs.divisor), rotary / 2));
  }

  // Both values of the pairs at a place, and the position that they are turned by.
  template <class X>
  struct Fetched {
    Packed<In, X::width, X::access> first, second;
    int position;
  };
  template <class X>
  KOKKOS_FUNCTION Fetched<X> fetch(Place at) const {
    Columns const columns = columns_of<X::width>(at.column);
    In const* const from = head_of(q, k, at.row, columns);
    Fetched<X> fetched;
    fetched.first = kfuse::fetch<X>(from + columns.first);
    if (X::access == Access::wide || columns.second + X::width <= q.extent(2))
      fetched.second = kfuse::fetch<X>(from + columns.second);
    else if constexpr (X::access == Access::single)
#pragma unroll
      for (int i = 0; i < X::width; ++i)
        if (columns.second + i < q.extent(2)) fetched.second.element[i] = from[columns.second + i];
    fetched.position = positions(at.row);
    return fetched;
  }
  template <class X>
  KOKKOS_FUNCTION void take(X const&, Fetched<X> const& fetched, Place at) const {
    Columns const columns = columns_of<X::width>(at.column);
    Out* const to = head_of(q_out, k_out, at.row, columns);
    if (columns.turned) {
      X first, second;
      unpack(fetched.first, first);
      unpack(fetched.second, second);
      turn(first, second, columns.pair, fetched.position);
      write(to + columns.first, first);
      write(to + columns.second, second);
    } else {
      copy<X>(fetched.first, to + columns.first, q.extent(2) - columns.first);
      copy<X>(fetched.second, to + columns.second, q.extent(2) - columns.second);
    }
  }

 private:
  // Where the values of a place are: two packs of a head, which is one of Q or, not below 0, one of K.
  struct Columns {
    int head, key, pair, first, second;
    bool turned;  // or only copied
  };
  template <int width>
  KOKKOS_FUNCTION Columns columns_of(int column) const {
    int const head = int(pairs.quotient(unsigned(column))), pair = column - head * int(pairs.divisor);
    bool const turned = pair < rotary / 2, halves = turned && kind == RopePairs::half;
    int const first = halves ? pair : 2 * pair;
    return {head, head - q.extent(1), pair, first, first + (halves ? rotary / 2 : width), turned};
  }

  template <class Element>
  KOKKOS_FUNCTION static Element* head_of(Tensor<Element, 3> const& q, Tensor<Element, 3> const& k, std::ptrdiff_t row,
                                          Columns const& columns) {
    bool const of_q = columns.key < 0;
    return (of_q ? q.data : k.data) + row * (of_q ? q.stride(0) : k.stride(0)) +
           (of_q ? columns.head : columns.key) * (of_q ? q.stride(1) : k.stride(1));
  }

  // Turns the pairs; where the position is beyond the table, into what is not a number: then some other row is read.
  // The table is not read ahead: all heads of a token share its row, which is near, and it would take most registers.
  template <class X>
  KOKKOS_FUNCTION void turn(X& first, X& second, int pair, int position) const {
    using Real = typename X::Real;
    constexpr bool halves = kind == RopePairs::half;
    bool const known = position >= 0 && position < table.extent(0);
    TableElement const* const row = table.at(known ? position : 0, pair);
    X cosine, sine;
    read(row, cosine);
    read(row + rotary / 2, sine);
    if (!known) {
      status.raise(DataFault::position);
      for (auto& c : cosine) c = Kokkos::Experimental::quiet_NaN_v<Real>;
    }
    auto const value = [&](int i) -> Real& { return i < X::width ? first[i] : second[i - X::width]; };
#pragma unroll
    for (int i = 0; i < X::width; ++i) {
      Real &x1 = value(halves ? i : 2 * i), &x2 = value(halves ? X::width + i : 2 * i + 1);
      Real const old = x1;
      x1 = backend::add(old * cosine[i], -(x2 * sine[i]));
      x2 = backend::add(x2 * cosine[i], old * sine[i]);
    }
  }

  // Of `left` columns those of a pack, bit by bit where the type stays.
  template <class X>
  KOKKOS_FUNCTION static void copy(Packed<In, X::width, X::access> const& packed, Out* to, int left) {
    if constexpr (X::access == Access::single) {
#pragma unroll
      for (int i = 0; i < X::width && i < left; ++i)
        if constexpr (std::is_same_v<In, Out>)
          to[i] = packed.element[i];
        else
          to[i] = from_real<Out>(to_real(packed.element[i]));
    } else if constexpr (std::is_same_v<In, Out>) {
      using Words = impl::WordsOf<In, X::width>;
#pragma unroll
      for (int c = 0; c < Words::chunks; ++c) reinterpret_cast<typename Words::Chunk*>(to)[c] = packed.chunk[c];
    } else {
      X x;
      unpack(packed, x);
      write(to, x);
    }
  }
};

}  // namespace kfuse

#endif
