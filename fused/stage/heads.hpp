// SPDX-License-Identifier: Apache-2.0
// Rows of heads, [batch * tokens, heads * head_dim], as a projection makes them, against memory by head,
// [batch, heads, tokens, head_dim], as attention and the KV cache have it.
//
// load_heads(x)   rows from memory by head
// store_heads(y)  rows to memory by head; with positions, to these places among the past tokens
// store_columns   part of the row to a matrix of its own
// store_qkv       a row [ Q | K | V ] taken apart: Q to a matrix, K and V to the KV cache
#ifndef KFUSE_FUSED_STAGE_HEADS_HPP
#define KFUSE_FUSED_STAGE_HEADS_HPP

#include <kfuse/core/check_chain.hpp>
#include <kfuse/core/data_status.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>

namespace kfuse {

namespace impl {

// So many columns, or the most that int holds, which no chain takes.
inline int columns_of(std::ptrdiff_t heads, std::ptrdiff_t head_dim) {
  return int(std::min<std::ptrdiff_t>(heads * head_dim, std::numeric_limits<int>::max()));
}

}  // namespace impl

template <class Element, class Memory = void>
struct LoadHeads {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;

  Tensor<Element const, 4> from;  // [batch, heads, tokens, head_dim]

  int granularity() const { return from.extent(3); }
  Shape shape() const {
    return {std::ptrdiff_t(from.extent(0)) * from.extent(2), impl::columns_of(from.extent(1), from.extent(3))};
  }
  auto reads() const {
    Span s = span_of(from);
    s.moved = from.size() * std::ptrdiff_t(sizeof(Element));
    return std::array{s};
  }
  void check(std::string_view where, Shape shape) const {
    impl::check(shape == this->shape(), where, [&] {
      return impl::name_of(from) + ": " + impl::shape_text(from) +
             " is not [batch, heads, tokens, head_dim] of the chain's " + impl::rows_text(shape) +
             "; give it batch * tokens rows of heads * head_dim columns";
    });
  }
  template <class X>
  KOKKOS_FUNCTION auto fetch(Place at) const {
    int const tokens = from.extent(2), head_dim = from.extent(3);
    return kfuse::fetch<X>(
        from.at(int(at.row / tokens), at.column / head_dim, int(at.row % tokens), at.column % head_dim));
  }
  template <class X, class Fetched>
  KOKKOS_FUNCTION void take(X& x, Fetched const& fetched, Place) const {
    unpack(fetched, x);
  }
};

// Columns [first, first + heads * head_dim) of the row; head h of token t goes to (batch, h, position, .), where the
// position is t, or positions(row) if given. A position outside the memory stores nothing, and raises the status.
template <class Element, class Memory = void>
struct StoreHeads {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;

  Tensor<Element, 4> to;  // [batch, heads, capacity, head_dim]
  int const* positions;   // [rows]; null: by token
  int position_count;
  int first, tokens;  // rows are [batch, tokens]
  DataStatus status;

  int granularity() const { return std::gcd(to.extent(3), first); }
  std::ptrdiff_t rows() const { return std::ptrdiff_t(to.extent(0)) * tokens; }
  auto writes() const {
    Span s = span_of(to);
    s.moved = rows() * to.extent(1) * to.extent(3) * std::ptrdiff_t(sizeof(Element));
    return std::array{s};
  }
  auto reads() const {
    Span s = span_of(make_tensor(positions, position_count));
    s.element_bytes = 0;
    s.name = "positions";
    return std::array{s};
  }
  void check(std::string_view where, Shape shape) const {
    std::ptrdiff_t const end = first + std::ptrdiff_t(to.extent(1)) * to.extent(3);
    impl::check(first >= 0 && end <= shape.columns, where, [&] {
      return impl::name_of(to) + ": the columns from " + std::to_string(first) + " to " + std::to_string(end) +
             ", heads of " + impl::shape_text(to) + ", are not all there in " + impl::rows_text(shape) +
             "; give it memory for the heads of a row";
    });
    impl::check(tokens >= 0 && shape.rows == rows(), where, [&] {
      return impl::name_of(to) + ": " + impl::rows_text(shape) + " are not [batch, tokens] of " + impl::shape_text(to) +
             " and " + std::to_string(tokens) + " tokens; give it a row for each token of the batch";
    });
    impl::check(positions != nullptr || tokens <= to.extent(2), where, [&] {
      return impl::name_of(to) + ": " + impl::shape_text(to) + " has no memory for each of " + std::to_string(tokens) +
             " tokens; make it longer, or give the positions of the tokens";
    });
    impl::check(positions == nullptr || position_count == shape.rows, where, [&] {
      return "positions: has " + std::to_string(position_count) + " entries for " + impl::rows_text(shape) +
             "; give it one position for each row";
    });
    impl::check_lies_apart(to, where);
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X const& x, Place at) const {
    int const c = at.column - first, head_dim = to.extent(3);
    if (c < 0 || c >= to.extent(1) * head_dim) return;
    int const position = positions == nullptr ? int(at.row % tokens) : positions[at.row];
    if (position < 0 || position >= to.extent(2)) return status.raise(DataFault::position);
    write(to.at(int(at.row / tokens), c / head_dim, position, c % head_dim), x);
  }
};

template <class Element, class Memory = void>
struct StoreColumns {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;

  Tensor<Element, 2> to;  // [rows, some columns]
  int first;

  int granularity() const { return std::gcd(to.extent(1), first); }
  auto writes() const { return std::array{span_of(to)}; }
  void check(std::string_view where, Shape shape) const {
    impl::check(to.extent(0) == shape.rows && first >= 0 && std::ptrdiff_t(first) + to.extent(1) <= shape.columns,
                where, [&] {
                  return impl::name_of(to) + ": " + impl::shape_text(to) + " and the columns from " +
                         std::to_string(first) + " on are not part of " + impl::rows_text(shape) +
                         "; give it a row for each, and columns that "
                         "there are";
                });
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X const& x, Place at) const {
    int const c = at.column - first;
    if (c >= 0 && c < to.extent(1)) write(to.at(at.row, c), x);
  }
};

// x: [batch, heads, tokens, head_dim]
template <TensorLike T>
auto load_heads(T const& x) {
  return LoadHeads<impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{impl::tensor<4>(x, "kfuse", "load_heads")};
}

// y: [batch, heads, tokens, head_dim] gets the row's columns from `first` on.
template <TensorLike T>
auto store_heads(T const& y, int first = 0) {
  auto const to = impl::tensor<4>(y, "kfuse", "store_heads");
  return StoreHeads<impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{to, nullptr, 0, first, to.extent(2), {}};
}
// cache: [batch, heads, capacity, head_dim]; positions: int, [batch * tokens].
template <TensorLike T, TensorLike P>
auto store_heads(T const& cache, P const& positions, int first, int tokens, DataStatus status = {}) {
  auto const to = impl::tensor<4>(cache, "kfuse", "store_heads: cache");
  auto const at = impl::tensor<1>(positions, "kfuse", "store_heads: positions");
  return StoreHeads<impl::ElementOf<T>, impl::MemoriesOf<T, P>>{to, at.data, at.extent(0), first, tokens, status};
}

// y: [rows, n] gets the columns [first, first + n).
template <TensorLike T>
auto store_columns(T const& y, int first) {
  auto const to = impl::tensor<2>(y, "kfuse", "store_columns");
  return StoreColumns<impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{to, first};
}

// q: [rows, heads * head_dim]; k_cache, v_cache: [batch, kv_heads, capacity, head_dim].
template <TensorLike Q, TensorLike C, TensorLike P>
auto store_qkv(Q const& q, C const& k_cache, C const& v_cache, P const& positions, int tokens, DataStatus status = {}) {
  int const queries = impl::tensor<2>(q, "kfuse", "store_qkv: q").extent(1);
  auto const k = impl::tensor<4>(k_cache, "kfuse", "store_qkv: k_cache");
  return store_columns(q, 0) | store_heads(k_cache, positions, queries, tokens, status) |
         store_heads(v_cache, positions, impl::columns_of(1, queries + std::ptrdiff_t(k.extent(1)) * k.extent(3)),
                     tokens, status);
}

}  // namespace kfuse

#endif
