// SPDX-License-Identifier: Apache-2.0
// Causal attention of the last `sequence` tokens of `context`: a prefill, a chunk of one, or a step of decode.
#include <kfuse/fused/attention.hpp>
#include <kfuse/fused/matmul.hpp>
#include <kfuse/fused/softmax.hpp>
#include <kfuse/fused/stage/mask.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench.hpp"

namespace {

struct Attention {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const batch = sizes["batch"], heads = sizes["heads"], kv_heads = sizes["kv_heads"], dim = sizes["head_dim"];
    int const queries = sizes["sequence"], keys = sizes["context"], keys_dim = sizes.product({"context", "head_dim"});
    int const all_rows = sizes.product({"batch", "heads", "sequence"}), rows = heads / kv_heads * queries;
    int const products = sizes.product({"batch", "kv_heads"});
    auto const q = bench::random<Element>(memory, -2, 2, batch, heads, queries, dim);
    auto const k = bench::random<Element>(memory, -2, 2, batch, kv_heads, keys, dim);
    auto const v = bench::random<Element>(memory, -2, 2, batch, kv_heads, keys, dim);
    auto const out = bench::empty<Element>(memory, batch, heads, queries, dim);

    auto const expected = [=](std::ptrdiff_t r) {
      std::ptrdiff_t const query = r % queries, head = r / queries % heads, sequence = r / queries / heads;
      std::ptrdiff_t const part = sequence * kv_heads + head / (heads / kv_heads);
      auto const own = bench::row<Space>(kfuse::make_tensor(q.data, all_rows, dim), r);
      auto const all_keys = bench::row<Space>(kfuse::make_tensor(k.data, products, keys_dim), part);
      auto const all_values = bench::row<Space>(kfuse::make_tensor(v.data, products, keys_dim), part);
      std::vector<double> mixed(dim, 0), weights(std::max<std::ptrdiff_t>(0, keys - queries + query + 1), 0);
      double sum = 0;
      for (std::size_t j = 0; j < weights.size(); ++j) {
        for (int d = 0; d < dim; ++d) weights[j] += own[d] * all_keys[j * dim + d] / std::sqrt(double(dim));
        sum += weights[j] = std::exp(weights[j]);
      }
      for (std::size_t j = 0; j < weights.size(); ++j)
        for (int d = 0; d < dim; ++d) mixed[d] += weights[j] / sum * all_values[j * dim + d];
      return mixed;
    };
    auto result = bench::output("out", out, expected, 4);  // weights are rounded as well, and the eager scores
    result.rows_checked = 64;
    result.floor = 0.5;  // means of many values are small

    kfuse::AttentionOptions const options{.causal = kfuse::Causal::yes};
    kfuse::AttentionMask const mask{queries, keys, kfuse::Causal::yes};
    auto const task = kfuse::impl::attention_task<Element>(q, k, v, out, options);
    auto const path = attention_path(kfuse::impl::shape_of(task), kfuse::impl::attention_means(Space(), task, true));
    return {
        .fused =
            [=](bench::Context<Space> const& on) { kfuse::attention(on.space, q, k, v, out, options, on.workspace); },
        .eager =
            [=](bench::Context<Space> const& on) {
              auto const scope = on.workspace.scope();
              auto const scores = on.workspace.template take<Element>("scores", products, rows, keys);
              auto const by_row = kfuse::make_tensor(scores.data, all_rows, keys);
              kfuse::matmul(on.space, on.blas, kfuse::make_tensor(q.data, products, rows, dim),
                            kfuse::make_tensor(k.data, products, keys, dim), scores,
                            {.alpha = 1 / std::sqrt(double(dim)), .b = kfuse::Transpose::yes});
              kfuse::fuse(on.space, "kfuse::eager::mask",
                          kfuse::load(by_row) | kfuse::attention_mask(mask, batch, heads) | kfuse::store(by_row));
              kfuse::softmax(on.space, by_row, by_row);
              kfuse::matmul(on.space, on.blas, scores, kfuse::make_tensor(v.data, products, keys, dim),
                            kfuse::make_tensor(out.data, products, rows, dim));
            },
        .outputs = {result},
        .path = kfuse::name(path)};
  }
};

bench::Register<Attention> const entry(
    "attention", "out = softmax(q k^T / sqrt(head_dim), causal) v",
    {{"batch", 1}, {"heads", 32}, {"kv_heads", 8}, {"sequence", 2048}, {"context", 2048}, {"head_dim", 128}});

}  // namespace
