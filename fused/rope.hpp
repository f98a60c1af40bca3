// SPDX-License-Identifier: Apache-2.0
// rope: rotary position embedding (Su et al. 2021) of the heads of Q and K in one launch. Of each head's first
// rotary_dim columns, pair i of token t is turned by the angle that row positions(t) of a table holds:
//   y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin
//
// rope_table.hpp makes tables. Positions are read when the kernel runs, so that a recorded launch serves a growing
// sequence. One outside the table makes what is rotated NaN and raises options.status (DataFault::position), if one is
// given. rope_qkv.hpp does the same on the way to a KV cache.
#ifndef KFUSE_FUSED_ROPE_HPP
#define KFUSE_FUSED_ROPE_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/rotate.hpp>

#include <limits>
#include <string>
#include <type_traits>

namespace kfuse {

struct RopeHeadsOptions {
  int rotary_dim = 0;                 // the first so many columns of each head are rotated; 0: all
  RopePairs pairs = RopePairs::half;  // (i, i + rotary_dim / 2), or interleaved: (2 i, 2 i + 1)
  DataStatus status = {};
};

namespace impl {

template <class In, class Out>
void check_heads(Tensor<In, 3> const& x, Tensor<Out, 3> const& y, int tokens, int head_dim) {
  auto const where = "kfuse::rope";
  check(x.extent(0) == tokens && x.extent(2) == head_dim, where, [&] {
    return name_of(x) + ": " + shape_text(x) + " is not [tokens, heads, head_dim] with the " + std::to_string(tokens) +
           " tokens of positions and q's head_dim of " + std::to_string(head_dim) +
           "; give q, k and positions the same tokens";
  });
  check(same_shape(x, y), where, [&] {
    return name_of(y) + ": shape " + shape_text(y) + " is not that of " + name_of(x) + ", " + shape_text(x) +
           "; give it one value for each";
  });
}

template <class Space, TensorLike Q, TensorLike K, TensorLike T, TensorLike P, TensorLike QOut, TensorLike KOut,
          class F>
auto with_rope_chain(Q const& q, K const& k, T const& table, P const& positions, QOut const& q_out, KOut const& k_out,
                     RopeHeadsOptions const& options, bool copies_tails, F const& f) {
  using In = ElementOf<Q>;
  using Out = ElementOf<QOut>;
  auto const where = "kfuse::rope";
  auto queries = tensor_of<3, Space, In const>(q, "kfuse::rope", "q");
  auto keys = tensor_of<3, Space, In const>(k, "kfuse::rope", "k");
  auto queries_out = tensor_of<3, Space, Out>(q_out, where, copies_tails ? "q_out" : "q");
  auto keys_out = tensor_of<3, Space, Out>(k_out, where, copies_tails ? "k_out" : "k");
  auto const angles = tensor_of<2, Space, ElementOf<T> const>(table, "kfuse::rope", "table");
  auto const at = tensor_of<1, Space, int const>(positions, "kfuse::rope", "positions");

  int const head_dim = queries.extent(2), rotary = options.rotary_dim != 0 ? options.rotary_dim : head_dim;
  check_heads(queries, queries_out, at.extent(0), head_dim);
  check_heads(keys, keys_out, at.extent(0), head_dim);
  check_one_of(options.pairs, RopePairs::interleaved, where, "options.pairs");
  check_rotary(where, rotary, head_dim);
  check(angles.extent(1) == rotary, where, [&] {
    return "table: " + shape_text(angles) + " is not [positions, rotary_dim] with cosines and then sines of the " +
           std::to_string(rotary) + " columns that are rotated; give it one of rope_table(...) of that rotary_dim";
  });
  check(angles.extent(0) > 0 || at.empty(), where,
        "table: has no positions (each token would stand outside of it); make it for as many as there are");
  int const pairs = copies_tails ? (head_dim + 1) / 2 : rotary / 2;
  check((std::ptrdiff_t(queries.extent(1)) + keys.extent(1)) * pairs <= std::numeric_limits<int>::max(), where,
        "a token's heads have more than 2^31 pairs; call rope for some of the heads at a time");
  if (!copies_tails)
    queries.extents[2] = keys.extents[2] = queries_out.extents[2] = keys_out.extents[2] = rotary;  // nothing else moves
  auto const chain_of = [&](auto kind) {
    return as_chain(RotateHeads<decltype(kind)::value, In, Out, ElementOf<T>>{
        queries, keys, queries_out, keys_out, angles, at, rotary, Divisor(unsigned(pairs)), options.status});
  };
  if (options.pairs == RopePairs::interleaved)
    return f(chain_of(std::integral_constant<RopePairs, RopePairs::interleaved>()));
  return f(chain_of(std::integral_constant<RopePairs, RopePairs::half>()));
}

}  // namespace impl

// q: [tokens, heads, head_dim], k: [tokens, kv_heads, head_dim], rotated in place; the other columns of their heads are
// not touched. Tokens and heads may have any strides: parts of one packed QKV, or [heads, tokens, head_dim] seen as
// this. table: [positions, rotary_dim], cosines and then sines; positions: int, [tokens].
template <class Space, TensorLike Q, TensorLike K, TensorLike T, TensorLike P>
requires Kokkos::is_execution_space_v<Space>
void rope(Space const& space, Q const& q, K const& k, T const& table, P const& positions,
          RopeHeadsOptions const& options = {}) {
  impl::with_rope_chain<Space>(q, k, table, positions, q, k, options, false,
                               [&](auto const& chain) { fuse(space, "kfuse::rope", chain); });
}
// The same out of place, into another element type if wanted. q_out and k_out have the shapes of q and k; columns that
// are not rotated are copied, bit by bit if the type stays.
template <class Space, TensorLike Q, TensorLike K, TensorLike T, TensorLike P, TensorLike QOut, TensorLike KOut>
requires Kokkos::is_execution_space_v<Space>
void rope(Space const& space, Q const& q, K const& k, T const& table, P const& positions, QOut const& q_out,
          KOut const& k_out, RopeHeadsOptions const& options = {}) {
  impl::with_rope_chain<Space>(q, k, table, positions, q_out, k_out, options, true,
                               [&](auto const& chain) { fuse(space, "kfuse::rope", chain); });
}

// The same arguments as above. What lies between the heads of one token counts as moved.
template <class Space, TensorLike Q, TensorLike K, TensorLike T, TensorLike P>
Traffic rope_traffic(Space const&, Q const& q, K const& k, T const& table, P const& positions,
                     RopeHeadsOptions const& options = {}) {
  return impl::with_rope_chain<Space>(q, k, table, positions, q, k, options, false,
                                      [](auto const& chain) { return traffic(chain); });
}
template <class Space, TensorLike Q, TensorLike K, TensorLike T, TensorLike P, TensorLike QOut, TensorLike KOut>
Traffic rope_traffic(Space const&, Q const& q, K const& k, T const& table, P const& positions, QOut const& q_out,
                     KOut const& k_out, RopeHeadsOptions const& options = {}) {
  return impl::with_rope_chain<Space>(q, k, table, positions, q_out, k_out, options, true,
                                      [](auto const& chain) { return traffic(chain); });
}

}  // namespace kfuse

#endif
