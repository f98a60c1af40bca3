// SPDX-License-Identifier: Apache-2.0
// What stands between the projection of attention and attention itself: rows [ Q | K | V ] of all heads are taken
// apart, the heads of Q and K are rotated by their position (stage/rope.hpp), Q goes to a matrix, K and V to the cache.
//
// The chain load | rope | store_qkv. Each value is rounded once, when it is stored. Positions are read when the kernel
// runs, so that a recorded launch serves a growing sequence. A position outside the cache stores nothing there; one
// outside the table makes what is rotated NaN. Either raises options.status (DataFault::position), if one is given.
#ifndef KFUSE_FUSED_ROPE_QKV_HPP
#define KFUSE_FUSED_ROPE_QKV_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/heads.hpp>
#include <kfuse/fused/stage/rope.hpp>

#include <string>

namespace kfuse {

struct RopeQkvOptions {
  int rotary_dim = 0;  // the first so many columns of each head are rotated; 0: all
  RopePairs pairs = RopePairs::half;
  DataStatus status = {};
};

namespace impl {

template <class Space, TensorLike X, TensorLike T, TensorLike P, TensorLike Q, TensorLike C>
auto rope_qkv_chain(X const& qkv, T const& table, P const& positions, Q const& q, C const& k_cache, C const& v_cache,
                    RopeQkvOptions const& options) {
  auto const where = "kfuse::rope_qkv";
  auto const in = tensor_of<2, Space, ElementOf<X> const>(qkv, "kfuse::rope_qkv", "qkv");
  auto const angles = tensor_of<2, Space, ElementOf<T> const>(table, "kfuse::rope_qkv", "table");
  auto const at = tensor_of<1, Space, int const>(positions, "kfuse::rope_qkv", "positions");
  auto const queries = tensor_of<2, Space, ElementOf<Q>>(q, "kfuse::rope_qkv", "q");
  auto const keys = tensor_of<4, Space, ElementOf<C>>(k_cache, "kfuse::rope_qkv", "k_cache");
  auto const values = tensor_of<4, Space, ElementOf<C>>(v_cache, "kfuse::rope_qkv", "v_cache");

  int const batch = keys.extent(0), head_dim = keys.extent(3);
  auto const key_columns = std::ptrdiff_t(keys.extent(1)) * head_dim, rotated = queries.extent(1) + key_columns;
  check(head_dim > 0, where, [&] {
    return "k_cache: " + shape_text(keys) + " has no head_dim; give it [batch, heads, capacity, head_dim]";
  });
  check(same_shape(keys, values), where, [&] {
    return "v_cache: shape " + shape_text(values) + " is not that of k_cache, " + shape_text(keys) +
           "; give each key its value";
  });
  check(queries.extent(1) % head_dim == 0, where, [&] {
    return "q: " + shape_text(queries) + " has no whole heads of the cache's head_dim, " + std::to_string(head_dim) +
           "; give it [tokens, heads * head_dim]";
  });
  check(in.extent(1) == rotated + key_columns, where, [&] {
    return "qkv: rows of " + std::to_string(in.extent(1)) + " columns are not [ Q | K | V ] of q " +
           shape_text(queries) + " and caches " + shape_text(keys) + "; give it the columns of all three";
  });
  check(batch > 0 ? in.extent(0) % batch == 0 : in.extent(0) == 0, where, [&] {
    return "qkv: " + std::to_string(in.extent(0)) + " rows are not [batch, tokens] of the cache's batch of " +
           std::to_string(batch) + "; give it as many tokens of each sequence";
  });

  int const tokens = batch > 0 ? in.extent(0) / batch : 0;
  return load(in) | rope(angles, at, {head_dim, options.rotary_dim, int(rotated), options.pairs, options.status}) |
         store_qkv(queries, keys, values, at, tokens, options.status);
}

}  // namespace impl

// qkv: [batch * tokens, (heads + 2 kv_heads) * head_dim]; table: [positions, rotary_dim], cosines and then sines;
// positions: int, [batch * tokens], the place of each token in its sequence and in the cache;
// q: [batch * tokens, heads * head_dim]; k_cache, v_cache: [batch, kv_heads, capacity, head_dim].
template <class Space, TensorLike X, TensorLike T, TensorLike P, TensorLike Q, TensorLike C>
void rope_qkv(Space const& space, X const& qkv, T const& table, P const& positions, Q const& q, C const& k_cache,
              C const& v_cache, RopeQkvOptions const& options = {}) {
  fuse(space, "kfuse::rope_qkv", impl::rope_qkv_chain<Space>(qkv, table, positions, q, k_cache, v_cache, options));
}

template <class Space, TensorLike X, TensorLike T, TensorLike P, TensorLike Q, TensorLike C>
Traffic rope_qkv_traffic(Space const&, X const& qkv, T const& table, P const& positions, Q const& q, C const& k_cache,
                         C const& v_cache, RopeQkvOptions const& options = {}) {
  return traffic(impl::rope_qkv_chain<Space>(qkv, table, positions, q, k_cache, v_cache, options));
}

}  // namespace kfuse

#endif
