// SPDX-License-Identifier: Apache-2.0
// One transformer layer, one launch per operation, as a framework without fusion executes it: the yardstick.
#ifndef KFUSE_MODELS_EAGER_LAYER_HPP
#define KFUSE_MODELS_EAGER_LAYER_HPP

#include <kfuse/fused/layernorm.hpp>
#include <kfuse/fused/linear.hpp>
#include <kfuse/fused/matmul.hpp>
#include <kfuse/fused/rmsnorm.hpp>
#include <kfuse/fused/stage/activation.hpp>
#include <kfuse/fused/stage/heads.hpp>
#include <kfuse/fused/stage/mask.hpp>
#include <kfuse/fused/stage/rope.hpp>
#include <kfuse/fused/stage/softmax.hpp>
#include <kfuse/models/layer.hpp>

namespace kfuse {

namespace impl {

// The operations a framework would launch one by one. y may be x, except where heads are moved.
template <class Space, class Element>
struct EagerOperations {
  using In = Tensor<Element const, 2>;
  using Out = Tensor<Element, 2>;
  Space const& space;

  void add(In const& a, In const& b, Out const& y) const {
    fuse(space, "kfuse::eager::add", load(a) | kfuse::add(b) | store(y));
  }
  void multiply(In const& a, In const& b, Out const& y) const {
    fuse(space, "kfuse::eager::multiply", load(a) | kfuse::multiply(b) | store(y));
  }
  template <Activation activation>
  void activate(In const& x, Out const& y) const {
    fuse(space, "kfuse::eager::activate", load(x) | Activate<activation>{} | store(y));
  }
  template <class Table, class Positions>
  void rope(In const& x, Table const& table, Positions const& positions, int head_dim, Out const& y) const {
    fuse(space, "kfuse::eager::rope", load(x) | kfuse::rope(table, positions, {.head_dim = head_dim}) | store(y));
  }
  template <class Heads, class Positions>
  void append(In const& x, Heads const& cache, Positions const& positions, int tokens) const {
    fuse(space, "kfuse::eager::append", load(x) | store_heads(cache, positions, 0, tokens));
  }
  void split_heads(In const& x, Tensor<Element, 4> const& y) const {
    fuse(space, "kfuse::eager::split_heads", load(x) | store_heads(y));
  }
  void merge_heads(Tensor<Element const, 4> const& x, Out const& y) const {
    fuse(space, "kfuse::eager::merge_heads", load_heads(x) | store(y));
  }
  void mask(In const& x, AttentionMask const& mask, int batch, int heads, Out const& y) const {
    fuse(space, "kfuse::eager::mask", load(x) | attention_mask(mask, batch, heads) | store(y));
  }
  void softmax(In const& x, Out const& y) const {
    fuse(space, "kfuse::eager::softmax", load(x) | kfuse::softmax() | store(y));
  }
};

// What eager attention keeps between its operations. The query heads that share keys are the rows of one product.
template <class Element>
struct EagerScores {
  Tensor<Element, 4> q_heads, mixed_heads;  // [batch, heads, tokens, head_dim]
  Tensor<Element, 3> scores;                // [batch * kv_heads, heads / kv_heads * tokens, keys]

  template <class Space>
  EagerScores(Workspace<Space>& workspace, Layer<Space, Element> const& layer) {
    auto const& [config, weights, cache, progress, rope_table] = layer;
    int const batch = progress.batch, tokens = progress.tokens, group = config.heads / config.kv_heads;
    q_heads = workspace.template take<Element>("q_heads", batch, config.heads, tokens, config.head_dim);
    scores = workspace.template take<Element>("scores", batch * config.kv_heads, group * tokens, cache.capacity());
    mixed_heads = workspace.template take<Element>("mixed_heads", batch, config.heads, tokens, config.head_dim);
  }
};

// mixed = softmax(q keys^T / sqrt(head_dim), masked) values, q and mixed: [rows, heads * head_dim].
template <class Space, class Element>
void eager_attention(Space const& space, Blas<Space>& blas, EagerScores<Element> const& memory,
                     Layer<Space, Element> const& layer, Tensor<Element, 2> const& q, Tensor<Element, 2> const& mixed) {
  auto const& [config, weights, cache, progress, rope_table] = layer;
  EagerOperations<Space, Element> const eager{space};
  auto const& [q_heads, mixed_heads, scores] = memory;
  int const products = scores.extent(0), group = scores.extent(1), keys = scores.extent(2), head_dim = config.head_dim;
  auto const by_row = make_tensor(scores.data, products * group, keys);
  auto const k = make_tensor(cache.keys.data(), products, keys, head_dim);
  auto const v = make_tensor(cache.values.data(), products, keys, head_dim);

  eager.split_heads(q, q_heads);  // [batch, heads, tokens, d]
  matmul(space, blas, make_tensor(q_heads.data, products, group, head_dim), k, scores,
         {.alpha = 1 / std::sqrt(double(head_dim)), .b = Transpose::yes});  // [batch, heads, tokens, keys]
  eager.mask(by_row, layer_mask(layer), progress.batch, config.heads, by_row);
  eager.softmax(by_row, by_row);
  matmul(space, blas, scores, v,
         make_tensor(mixed_heads.data, products, group, head_dim));  // [batch, heads, tokens, d]
  eager.merge_heads(mixed_heads, mixed);                             // [rows, heads * d]
}

template <class Space, class Element>
void eager_llama(Space const& space, Blas<Space>& blas, Workspace<Space>& workspace, Layer<Space, Element> const& layer,
                 Tensor<Element const, 2> const& x, Tensor<Element, 2> const& y) {
  auto const& [config, weights, cache, progress, rope_table] = layer;
  EagerOperations<Space, Element> const eager{space};
  int const rows = layer.rows(), hidden = config.hidden, queries = layer.query_columns(), kv = layer.kv_columns();
  int const inner = config.intermediate;
  auto const qkv_weights = as_tensor(weights.qkv), up_weights = as_tensor(weights.up);
  auto const scope = workspace.scope();
  auto const normed = workspace.template take<Element>("normed", rows, hidden);
  auto const q = workspace.template take<Element>("q", rows, queries);
  auto const k = workspace.template take<Element>("k", rows, kv);
  auto const v = workspace.template take<Element>("v", rows, kv);
  auto const q_rotated = workspace.template take<Element>("q_rotated", rows, queries);
  auto const k_rotated = workspace.template take<Element>("k_rotated", rows, kv);
  auto const mixed = workspace.template take<Element>("mixed", rows, queries);
  auto const half = workspace.template take<Element>("half", rows, hidden);
  auto const sum = workspace.template take<Element>("sum", rows, hidden);
  auto const gate = workspace.template take<Element>("gate", rows, inner);
  auto const up = workspace.template take<Element>("up", rows, inner);
  EagerScores<Element> const scores(workspace, layer);

  rmsnorm(space, x, weights.norm1, normed, {.epsilon = config.norm_epsilon});  // [rows, hidden]
  linear(space, blas, normed, kfuse::rows(qkv_weights, 0, queries), q);        // [rows, heads * d]
  linear(space, blas, normed, kfuse::rows(qkv_weights, queries, kv), k);       // [rows, kv_heads * d]
  linear(space, blas, normed, kfuse::rows(qkv_weights, queries + kv, kv), v);  // [rows, kv_heads * d]
  eager.rope(q, rope_table, progress.positions, config.head_dim, q_rotated);
  eager.rope(k, rope_table, progress.positions, config.head_dim, k_rotated);
  eager.append(k_rotated, cache.keys, progress.positions, progress.tokens);
  eager.append(v, cache.values, progress.positions, progress.tokens);
  eager_attention(space, blas, scores, layer, q_rotated, mixed);                 // [rows, heads * d]
  linear(space, blas, mixed, weights.out, half);                                 // [rows, hidden]
  eager.add(x, half, sum);                                                       // [rows, hidden]
  rmsnorm(space, sum, weights.norm2, normed, {.epsilon = config.norm_epsilon});  // [rows, hidden]
  linear(space, blas, normed, kfuse::rows(up_weights, 0, inner), gate);          // [rows, intermediate]
  linear(space, blas, normed, kfuse::rows(up_weights, inner, inner), up);        // [rows, intermediate]
  eager.template activate<Activation::silu>(gate, gate);
  eager.multiply(gate, up, gate);
  linear(space, blas, gate, weights.down, half);  // [rows, hidden]
  eager.add(sum, half, y);                        // [rows, hidden]
}

template <class Space, class Element>
void eager_gpt2(Space const& space, Blas<Space>& blas, Workspace<Space>& workspace, Layer<Space, Element> const& layer,
                Tensor<Element const, 2> const& x, Tensor<Element, 2> const& y) {
  auto const& [config, weights, cache, progress, rope_table] = layer;
  EagerOperations<Space, Element> const eager{space};
  int const rows = layer.rows(), hidden = config.hidden;
  auto const scope = workspace.scope();
  auto const normed = workspace.template take<Element>("normed", rows, hidden);
  auto const qkv = workspace.template take<Element>("qkv", rows, 3 * hidden);
  auto const mixed = workspace.template take<Element>("mixed", rows, hidden);
  auto const half = workspace.template take<Element>("half", rows, hidden);
  auto const sum = workspace.template take<Element>("sum", rows, hidden);
  auto const inner = workspace.template take<Element>("inner", rows, config.intermediate);
  EagerScores<Element> const scores(workspace, layer);

  layernorm(space, x, weights.norm1, weights.norm1_bias, normed, {.epsilon = config.norm_epsilon});  // [rows, hidden]
  linear(space, blas, normed, weights.qkv, qkv, {.bias = as_tensor(weights.qkv_bias)});  // [rows, Q | K | V]
  eager.append(columns(qkv, hidden, hidden), cache.keys, progress.positions, progress.tokens);
  eager.append(columns(qkv, 2 * hidden, hidden), cache.values, progress.positions, progress.tokens);
  eager_attention(space, blas, scores, layer, columns(qkv, 0, hidden), mixed);                         // [rows, hidden]
  linear(space, blas, mixed, weights.out, half, {.bias = as_tensor(weights.out_bias)});                // [rows, hidden]
  eager.add(x, half, sum);                                                                             // [rows, hidden]
  layernorm(space, sum, weights.norm2, weights.norm2_bias, normed, {.epsilon = config.norm_epsilon});  // [rows, hidden]
  linear(space, blas, normed, weights.up, inner, {.bias = as_tensor(weights.up_bias)});  // [rows, intermediate]
  eager.template activate<Activation::gelu_tanh>(inner, inner);
  linear(space, blas, inner, weights.down, half, {.bias = as_tensor(weights.down_bias)});  // [rows, hidden]
  eager.add(sum, half, y);                                                                 // [rows, hidden]
}

template <class Space, class Element>
void eager_bert(Space const& space, Blas<Space>& blas, Workspace<Space>& workspace, Layer<Space, Element> const& layer,
                Tensor<Element const, 2> const& x, Tensor<Element, 2> const& y) {
  auto const& [config, weights, cache, progress, rope_table] = layer;
  EagerOperations<Space, Element> const eager{space};
  int const rows = layer.rows(), hidden = config.hidden;
  auto const qkv_weights = as_tensor(weights.qkv);
  auto const bias = [&layer, hidden](int part) {
    return Tensor<Element const, 1>{layer.weights.qkv_bias.data() + part * hidden, {hidden}, {1}};
  };
  auto const scope = workspace.scope();
  auto const q = workspace.template take<Element>("q", rows, hidden);
  auto const k = workspace.template take<Element>("k", rows, hidden);
  auto const v = workspace.template take<Element>("v", rows, hidden);
  auto const mixed = workspace.template take<Element>("mixed", rows, hidden);
  auto const half = workspace.template take<Element>("half", rows, hidden);
  auto const sum = workspace.template take<Element>("sum", rows, hidden);
  auto const normed = workspace.template take<Element>("normed", rows, hidden);
  auto const inner = workspace.template take<Element>("inner", rows, config.intermediate);
  EagerScores<Element> const scores(workspace, layer);

  linear(space, blas, x, kfuse::rows(qkv_weights, 0, hidden), q, {.bias = bias(0)});           // [rows, hidden]
  linear(space, blas, x, kfuse::rows(qkv_weights, hidden, hidden), k, {.bias = bias(1)});      // [rows, hidden]
  linear(space, blas, x, kfuse::rows(qkv_weights, 2 * hidden, hidden), v, {.bias = bias(2)});  // [rows, hidden]
  eager.append(k, cache.keys, progress.positions, progress.tokens);
  eager.append(v, cache.values, progress.positions, progress.tokens);
  eager_attention(space, blas, scores, layer, q, mixed);                                               // [rows, hidden]
  linear(space, blas, mixed, weights.out, half, {.bias = as_tensor(weights.out_bias)});                // [rows, hidden]
  eager.add(x, half, sum);                                                                             // [rows, hidden]
  layernorm(space, sum, weights.norm1, weights.norm1_bias, normed, {.epsilon = config.norm_epsilon});  // [rows, hidden]
  linear(space, blas, normed, weights.up, inner, {.bias = as_tensor(weights.up_bias)});  // [rows, intermediate]
  eager.template activate<Activation::gelu>(inner, inner);
  linear(space, blas, inner, weights.down, half, {.bias = as_tensor(weights.down_bias)});         // [rows, hidden]
  eager.add(normed, half, sum);                                                                   // [rows, hidden]
  layernorm(space, sum, weights.norm2, weights.norm2_bias, y, {.epsilon = config.norm_epsilon});  // [rows, hidden]
}

}  // namespace impl

// y = the layer's output for the current tokens x, both [batch * tokens, hidden]; see fused_layer.
template <class Space, class Element>
void eager_layer(Space const& space, Blas<Space>& blas, Workspace<Space>& workspace, Layer<Space, Element> const& layer,
                 Tensor<Element const, 2> const& x, Tensor<Element, 2> const& y) {
  impl::check_layer(layer, x, y, "eager_layer");
  if (layer.config.family == Family::llama) return impl::eager_llama(space, blas, workspace, layer, x, y);
  if (layer.config.family == Family::gpt2) return impl::eager_gpt2(space, blas, workspace, layer, x, y);
  impl::eager_bert(space, blas, workspace, layer, x, y);
}

// Compiled once, in models/eager_layer.cpp, for the default space.
extern template LayerFunction<Kokkos::DefaultExecutionSpace, double> eager_layer<Kokkos::DefaultExecutionSpace, double>;
extern template LayerFunction<Kokkos::DefaultExecutionSpace, float> eager_layer<Kokkos::DefaultExecutionSpace, float>;
extern template LayerFunction<Kokkos::DefaultExecutionSpace, bf16> eager_layer<Kokkos::DefaultExecutionSpace, bf16>;
extern template LayerFunction<Kokkos::DefaultExecutionSpace, fp16> eager_layer<Kokkos::DefaultExecutionSpace, fp16>;

}  // namespace kfuse

#endif
