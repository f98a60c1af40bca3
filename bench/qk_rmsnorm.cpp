// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/qk_rmsnorm.hpp>

#include <cmath>

#include "bench.hpp"

namespace {

struct QkRmsNorm {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const tokens = sizes["tokens"], q_heads = sizes["heads"], heads = q_heads + sizes["kv_heads"];
    int const dim = sizes["head_dim"];
    auto const x = bench::random<Element>(memory, -1, 1, tokens, heads, dim);
    auto const q_weight = bench::random<Element>(memory, 0.5, 1.5, dim);
    auto const k_weight = bench::random<Element>(memory, 0.5, 1.5, dim);
    auto const y = bench::empty<Element>(memory, tokens, heads, dim);

    auto const normed = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(x, r);
      auto const w = bench::row<Space>(r % heads < q_heads ? q_weight : k_weight);
      double squares = 0;
      for (double const v : values) squares += v * v;
      for (int d = 0; d < dim; ++d) values[d] *= w[d] / std::sqrt(squares / dim + 1e-6);
      return values;
    };
    return {.fused =
                [=](bench::Context<Space> const& on) {
                  kfuse::qk_rmsnorm(on.space, x, q_heads, q_weight, k_weight, y, {}, on.workspace);
                },
            .eager =
                [=](bench::Context<Space> const& on) {
                  // Q and K one after the other.
                  auto const part = [&](auto const& t, int first, int count) {
                    auto part = t;
                    part.data = t.at(0, first);
                    part.extents[1] = count;
                    return part;
                  };
                  kfuse::qk_rmsnorm(on.space, part(x, 0, q_heads), q_heads, q_weight, k_weight, part(y, 0, q_heads), {},
                                    on.workspace);
                  kfuse::qk_rmsnorm(on.space, part(x, q_heads, heads - q_heads), 0, q_weight, k_weight,
                                    part(y, q_heads, heads - q_heads), {}, on.workspace);
                },
            .outputs = {bench::output("y", y, normed)}};
  }
};

bench::Register<QkRmsNorm> const entry("qk_rmsnorm", "y = rmsnorm of each head of Q and of K, weights of their own",
                                       {{"tokens", 16384}, {"heads", 32}, {"kv_heads", 8}, {"head_dim", 128}});

}  // namespace
