// SPDX-License-Identifier: Apache-2.0
// What a transformer layer works with, whichever way it is executed.
#ifndef KFUSE_MODELS_LAYER_HPP
#define KFUSE_MODELS_LAYER_HPP

#include <kfuse/core/blas.hpp>
#include <kfuse/core/workspace.hpp>
#include <kfuse/fused/attention_mask.hpp>
#include <kfuse/models/kv_cache.hpp>
#include <kfuse/models/layer_config.hpp>
#include <kfuse/models/layer_weights.hpp>

#include <cstddef>
#include <limits>

namespace kfuse {

// A layer on its way through a batch of sequences. It refers to what the caller owns.
template <class Space, class Element>
struct Layer {
  LayerConfig const& config;
  LayerWeights<Space, Element> const& weights;
  KvCache<Space, Element> const& cache;
  Progress<Space> const& progress;
  Matrix<Space, Real<Element>> const& rope_table;  // llama

  int rows() const { return progress.rows(); }
  int query_columns() const { return config.heads * config.head_dim; }
  int kv_columns() const { return config.kv_heads * config.head_dim; }
};

// How a layer is called: fused_layer and eager_layer.
template <class Space, class Element>
using LayerFunction = void(Space const&, Blas<Space>&, Workspace<Space>&, Layer<Space, Element> const&,
                           Tensor<Element const, 2> const& x, Tensor<Element, 2> const& y);

namespace impl {

template <class Space, class Element>
void check_layer(Layer<Space, Element> const& layer, Tensor<Element const, 2> const& x, Tensor<Element, 2> const& y,
                 char const* where) {
  LayerConfig const& config = layer.config;
  check(x.extent(0) == layer.rows() && x.extent(1) == config.hidden, where, [&] {
    return "x has the shape " + shape_text(x) + ", but " + std::to_string(layer.progress.batch) + " sequences of " +
           std::to_string(layer.progress.tokens) + " tokens are " + std::to_string(layer.rows()) + " rows of " +
           std::to_string(config.hidden);
  });
  check(std::ptrdiff_t(layer.rows()) * config.heads <= std::numeric_limits<int>::max(), where,
        "more than 2^31 - 1 tokens times heads; use a smaller batch or fewer tokens at once");
  check(same_shape<Element const, Element>(x, y), where, "y must have the shape of x");
  check(!overlap(span_of(x), span_of(y)), where, "y must not overlap x, which is still needed when y is written");
  auto const& keys = layer.cache.keys;
  check(int(keys.extent(0)) == layer.progress.batch && int(keys.extent(1)) == config.kv_heads &&
            int(keys.extent(3)) == config.head_dim,
        where, "the KV cache was made for another batch or configuration");
  check(layer.progress.tokens <= layer.cache.capacity(), where, [&] {
    return "the KV cache holds " + std::to_string(layer.cache.capacity()) + " tokens, fewer than the " +
           std::to_string(layer.progress.tokens) + " given at once; make it larger";
  });
  check(layer.progress.visible.size() == 0 || (int(layer.progress.visible.extent(0)) == layer.progress.batch &&
                                               int(layer.progress.visible.extent(1)) == layer.cache.capacity()),
        where, "the key mask must be [batch, capacity of the KV cache]");
  LayerWeights<Space, Element>::for_each(
      layer.weights, config, [&](std::string const& name, auto const& view, int out, int in) {
        bool const is_vector = view.rank() == 1;
        check(int(view.extent(0)) == (is_vector ? in : out) && (is_vector || int(view.extent(view.rank() - 1)) == in),
              where, [&] {
                return "the weight " + name + " was made for another configuration; this one asks for [" +
                       std::to_string(out) + ", " + std::to_string(in) + "]";
              });
      });
  check(config.family != Family::llama || int(layer.rope_table.extent(1)) == config.head_dim, where,
        "a Llama layer needs a rope table with head_dim columns; make it with rope_table()");
}

// Which keys the current tokens see.
template <class Space, class Element>
AttentionMask layer_mask(Layer<Space, Element> const& layer) {
  auto const& p = layer.progress;
  return {p.tokens,         layer.cache.capacity(), layer.config.family == Family::bert ? Causal::no : Causal::yes,
          p.lengths.data(), p.visible.data(),       std::ptrdiff_t(p.visible.extent(1))};
}

// [rows, heads * head_dim] seen by head: [batch, heads, tokens, head_dim].
template <class Element>
Tensor<Element, 4> by_head(Tensor<Element, 2> const& t, int batch, int tokens, int head_dim) {
  return {t.data, {batch, t.extent(1) / head_dim, tokens, head_dim}, {tokens * t.stride(0), head_dim, t.stride(0), 1}};
}

}  // namespace impl
}  // namespace kfuse

#endif
