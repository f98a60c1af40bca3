// SPDX-License-Identifier: Apache-2.0
// store_qkv: takes rows [ Q | K | V ] of a packed projection apart. Q goes to a matrix, K and V to their places among
// the past tokens (the KV cache).
#ifndef KFUSE_FUSED_STAGE_QKV_HPP
#define KFUSE_FUSED_STAGE_QKV_HPP

#include <kfuse/fused/stage/load_store.hpp>

#include <numeric>

namespace kfuse {

// One part of the row, columns [first, first + heads * head_dim): head h goes to cache(batch, h, position, .).
template <class Element, class Memory = void>
struct StoreCache {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;

  Tensor<Element, 4> cache;        // [batch, heads, capacity, head_dim]
  Tensor<int const, 1> positions;  // [rows]
  int first, tokens;               // rows are [batch, tokens]

  int granularity() const { return std::gcd(cache.extent(3), first); }
  auto writes() const {
    Span s = span_of(cache);
    s.moved = std::ptrdiff_t(positions.extent(0)) * cache.extent(1) * cache.extent(3) * std::ptrdiff_t(sizeof(Element));
    return std::array{s};
  }
  auto reads() const {
    Span s = span_of(positions);
    s.element_bytes = 0;
    return std::array{s};
  }
  void check(std::string_view where, Shape shape) const {
    impl::check(
        first >= 0 && first % cache.extent(3) == 0 && first + cache.extent(1) * cache.extent(3) <= shape.columns, where,
        "store_cache: the rows do not have so many heads of head_dim columns");
    impl::check(
        tokens > 0 && shape.rows == std::ptrdiff_t(cache.extent(0)) * tokens && positions.extent(0) == shape.rows,
        where, "store_cache: rows must be [batch, tokens] of the cache's batch, with one position each");
  }
  // A position outside the cache stores nothing.
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    int const c = at.column - first, head_dim = cache.extent(3);
    if (c < 0 || c >= cache.extent(1) * head_dim) return;
    int const position = positions(at.row);
    if (position < 0 || position >= cache.extent(2)) return;
    write(cache.at(int(at.row / tokens), c / head_dim, position, c % head_dim), x);
  }
};

// The columns [first, first + y's columns) to a matrix of their own.
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
    impl::check(to.extent(0) == shape.rows && first >= 0 && first + to.extent(1) <= shape.columns, where,
                "store_columns: the chain's rows do not have these columns");
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    int const c = at.column - first;
    if (c >= 0 && c < to.extent(1)) write(to.at(at.row, c), x);
  }
};

// y: [rows, n] gets the columns [first, first + n).
template <TensorLike T>
auto store_columns(T const& y, int first) {
  return StoreColumns<impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{impl::tensor<2>(y, "store_columns"), first};
}
// cache: [batch, heads, capacity, head_dim]; positions: int, [batch * tokens].
template <TensorLike T, TensorLike P>
auto store_cache(T const& cache, P const& positions, int first, int tokens) {
  return StoreCache<impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{
      impl::tensor<4>(cache, "store_cache: cache"), impl::tensor<1>(positions, "store_cache: positions"), first,
      tokens};
}
// All three parts of a row [ Q | K | V ].
template <TensorLike Q, TensorLike C, TensorLike P>
auto store_qkv(Q const& q, C const& k_cache, C const& v_cache, P const& positions, int tokens) {
  int const queries = int(impl::tensor<2>(q, "store_qkv: q").extent(1));
  auto const k = impl::tensor<4>(k_cache, "store_qkv: k_cache");
  return store_columns(q, 0) | store_cache(k_cache, positions, queries, tokens) |
         store_cache(v_cache, positions, queries + k.extent(1) * k.extent(3), tokens);
}

}  // namespace kfuse

#endif
