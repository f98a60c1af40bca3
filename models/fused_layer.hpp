// SPDX-License-Identifier: Apache-2.0
// One transformer layer, one line per fused operator.
#ifndef KFUSE_MODELS_FUSED_LAYER_HPP
#define KFUSE_MODELS_FUSED_LAYER_HPP

#include <kfuse/fused/attention.hpp>
#include <kfuse/fused/layernorm.hpp>
#include <kfuse/fused/linear.hpp>
#include <kfuse/fused/rmsnorm.hpp>
#include <kfuse/fused/rope_qkv.hpp>
#include <kfuse/fused/stage/heads.hpp>
#include <kfuse/fused/swiglu.hpp>
#include <kfuse/models/layer.hpp>

namespace kfuse {

namespace impl {

// The layer's attention, ready to be called: with the memory it needs beside its arguments taken.
// q, mixed: [rows, heads * head_dim]; k, v: [batch, kv_heads, keys, head_dim].
template <class Space, class Element, TensorLike K>
auto layer_attention(Space const& space, Workspace<Space>& workspace, Layer<Space, Element> const& layer,
                     Tensor<Element, 2> const& q, K const& k, K const& v, Tensor<Element, 2> const& mixed) {
  auto const& p = layer.progress;
  AttentionOptions options{.causal = layer_mask(layer).causal, .lengths = as_tensor(p.lengths)};
  if (p.visible.size() > 0) options.visible = as_tensor(p.visible);
  int const head_dim = layer.config.head_dim;
  return prepare_attention(space, by_head(q, p.batch, p.tokens, head_dim), k, v,
                           by_head(mixed, p.batch, p.tokens, head_dim), options, &workspace);
}

template <class Space, class Element>
void fused_llama(Space const& space, Blas<Space>& blas, Workspace<Space>& workspace, Layer<Space, Element> const& layer,
                 Tensor<Element const, 2> const& x, Tensor<Element, 2> const& y) {
  auto const& [config, weights, cache, progress, rope_table] = layer;
  int const rows = layer.rows(), hidden = config.hidden, queries = layer.query_columns();
  auto const scope = workspace.scope();
  auto const normed = workspace.template take<Element>("normed", rows, hidden);
  auto const qkv = workspace.template take<Element>("qkv", rows, queries + 2 * layer.kv_columns());
  auto const q = workspace.template take<Element>("q", rows, queries);
  auto const mixed = workspace.template take<Element>("mixed", rows, queries);
  auto const sum = workspace.template take<Element>("sum", rows, hidden);
  auto const gate_up = workspace.template take<Element>("gate_up", rows, 2 * config.intermediate);
  auto const gated = workspace.template take<Element>("gated", rows, config.intermediate);
  auto const attend = layer_attention(space, workspace, layer, q, cache.keys, cache.values, mixed);

  rmsnorm(space, x, weights.norm1, normed, {.epsilon = config.norm_epsilon});         // [rows, hidden]
  linear(space, blas, normed, weights.qkv, qkv);                                      // [rows, Q | K | V]
  rope_qkv(space, qkv, rope_table, progress.positions, q, cache.keys, cache.values);  // [rows, queries]
  attend(space);                                                                      // [rows, queries]
  linear(space, blas, mixed, weights.out, sum, {.residual = x});                      // [rows, hidden]
  rmsnorm(space, sum, weights.norm2, normed, {.epsilon = config.norm_epsilon});       // [rows, hidden]
  linear(space, blas, normed, weights.up, gate_up);                                   // [rows, gate | up]
  swiglu(space, gate_up, gated);                                                      // [rows, intermediate]
  linear(space, blas, gated, weights.down, y, {.residual = sum});                     // [rows, hidden]
}

// qkv: [rows, Q | K | V]. Its keys and values go to the cache.
template <class Space, class Element>
void store_kv(Space const& space, Layer<Space, Element> const& layer, Tensor<Element, 2> const& qkv) {
  int const hidden = layer.config.hidden, tokens = layer.progress.tokens;
  fuse(space, "kfuse::store_kv",
       load(qkv) | store_heads(layer.cache.keys, layer.progress.positions, hidden, tokens) |
           store_heads(layer.cache.values, layer.progress.positions, 2 * hidden, tokens));
}

template <class Space, class Element>
void fused_gpt2(Space const& space, Blas<Space>& blas, Workspace<Space>& workspace, Layer<Space, Element> const& layer,
                Tensor<Element const, 2> const& x, Tensor<Element, 2> const& y) {
  auto const& [config, weights, cache, progress, rope_table] = layer;
  int const rows = layer.rows(), hidden = config.hidden;
  auto const scope = workspace.scope();
  auto const normed = workspace.template take<Element>("normed", rows, hidden);
  auto const qkv = workspace.template take<Element>("qkv", rows, 3 * hidden);
  auto const mixed = workspace.template take<Element>("mixed", rows, hidden);
  auto const sum = workspace.template take<Element>("sum", rows, hidden);
  auto const inner = workspace.template take<Element>("inner", rows, config.intermediate);
  auto const attend =
      layer_attention(space, workspace, layer, columns(qkv, 0, hidden), cache.keys, cache.values, mixed);

  layernorm(space, x, weights.norm1, weights.norm1_bias, normed, {.epsilon = config.norm_epsilon});  // [rows, hidden]
  linear(space, blas, normed, weights.qkv, qkv, {.bias = as_tensor(weights.qkv_bias)});  // [rows, Q | K | V]
  store_kv(space, layer, qkv);
  attend(space);                                                                                       // [rows, hidden]
  linear(space, blas, mixed, weights.out, sum, {.bias = as_tensor(weights.out_bias), .residual = x});  // [rows, hidden]
  layernorm(space, sum, weights.norm2, weights.norm2_bias, normed, {.epsilon = config.norm_epsilon});  // [rows, hidden]
  linear(space, blas, normed, weights.up, inner,
         {.bias = as_tensor(weights.up_bias), .activation = Activation::gelu_tanh});  // [rows, intermediate]
  linear(space, blas, inner, weights.down, y,
         {.bias = as_tensor(weights.down_bias), .residual = sum});  // [rows, hidden]
}

// Keys and values are used where the projection leaves them, unless the cache has room for past tokens.
template <class Space, class Element>
void fused_bert(Space const& space, Blas<Space>& blas, Workspace<Space>& workspace, Layer<Space, Element> const& layer,
                Tensor<Element const, 2> const& x, Tensor<Element, 2> const& y) {
  auto const& [config, weights, cache, progress, rope_table] = layer;
  int const rows = layer.rows(), hidden = config.hidden;
  auto const scope = workspace.scope();
  auto const qkv = workspace.template take<Element>("qkv", rows, 3 * hidden);
  auto const mixed = workspace.template take<Element>("mixed", rows, hidden);
  auto const sum = workspace.template take<Element>("sum", rows, hidden);
  auto const normed = workspace.template take<Element>("normed", rows, hidden);
  auto const inner = workspace.template take<Element>("inner", rows, config.intermediate);
  bool const cached = cache.capacity() > progress.tokens;
  auto const of_qkv = [&](int part) {
    auto const& p = layer.progress;
    return by_head(columns(qkv, part * hidden, hidden), p.batch, p.tokens, layer.config.head_dim);
  };
  auto const attend =
      layer_attention(space, workspace, layer, columns(qkv, 0, hidden), cached ? as_tensor(cache.keys) : of_qkv(1),
                      cached ? as_tensor(cache.values) : of_qkv(2), mixed);

  linear(space, blas, x, weights.qkv, qkv, {.bias = as_tensor(weights.qkv_bias)});  // [rows, Q | K | V]
  if (cached) store_kv(space, layer, qkv);
  attend(space);                                                                                       // [rows, hidden]
  linear(space, blas, mixed, weights.out, sum, {.bias = as_tensor(weights.out_bias), .residual = x});  // [rows, hidden]
  layernorm(space, sum, weights.norm1, weights.norm1_bias, normed, {.epsilon = config.norm_epsilon});  // [rows, hidden]
  linear(space, blas, normed, weights.up, inner,
         {.bias = as_tensor(weights.up_bias), .activation = Activation::gelu});  // [rows, intermediate]
  linear(space, blas, inner, weights.down, sum, {.bias = as_tensor(weights.down_bias), .residual = normed});
  layernorm(space, sum, weights.norm2, weights.norm2_bias, y, {.epsilon = config.norm_epsilon});  // [rows, hidden]
}

}  // namespace impl

// y = the layer's output for the current tokens x, both [batch * tokens, hidden]. Keys and values of these tokens are
// stored in the cache. Everything in between lies in `workspace`. y must not overlap x.
template <class Space, class Element>
void fused_layer(Space const& space, Blas<Space>& blas, Workspace<Space>& workspace, Layer<Space, Element> const& layer,
                 Tensor<Element const, 2> const& x, Tensor<Element, 2> const& y) {
  impl::check_layer(layer, x, y, "fused_layer");
  if (layer.config.family == Family::llama) return impl::fused_llama(space, blas, workspace, layer, x, y);
  if (layer.config.family == Family::gpt2) return impl::fused_gpt2(space, blas, workspace, layer, x, y);
  impl::fused_bert(space, blas, workspace, layer, x, y);
}

// Compiled once, in models/fused_layer.cpp, for the default space.
extern template LayerFunction<Kokkos::DefaultExecutionSpace, double> fused_layer<Kokkos::DefaultExecutionSpace, double>;
extern template LayerFunction<Kokkos::DefaultExecutionSpace, float> fused_layer<Kokkos::DefaultExecutionSpace, float>;
extern template LayerFunction<Kokkos::DefaultExecutionSpace, bf16> fused_layer<Kokkos::DefaultExecutionSpace, bf16>;
extern template LayerFunction<Kokkos::DefaultExecutionSpace, fp16> fused_layer<Kokkos::DefaultExecutionSpace, fp16>;

}  // namespace kfuse

#endif
