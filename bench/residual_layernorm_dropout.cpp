// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/layernorm.hpp>
#include <kfuse/fused/residual_layernorm_dropout.hpp>

#include <cmath>

#include "../tests/dropped.hpp"
#include "bench.hpp"

namespace {

struct ResidualLayerNormDropout {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"];
    kfuse::RandomState const random{1, 2};
    auto const x = bench::random<Element>(memory, -1, 3, rows, columns);
    auto const residual = bench::random<Element>(memory, -1, 1, rows, columns);
    auto const weight = bench::random<Element>(memory, 0.5, 1.5, columns);
    auto const bias = bench::random<Element>(memory, -1, 1, columns);
    auto const x_bias = bench::random<Element>(memory, -1, 1, columns);
    auto const y = bench::empty<Element>(memory, rows, columns);

    auto const dropped = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(x, r);
      auto const other = bench::row<Space>(residual, r), w = bench::row<Space>(weight), b = bench::row<Space>(bias),
                 x_b = bench::row<Space>(x_bias);
      double mean = 0, squares = 0;
      for (int c = 0; c < columns; ++c) values[c] += x_b[c] + other[c];
      for (double const v : values) mean += v / columns;
      for (double const v : values) squares += (v - mean) * (v - mean) / columns;
      for (int c = 0; c < columns; ++c) {
        double const normed = (values[c] - mean) / std::sqrt(squares + 1e-5) * w[c] + b[c];
        values[c] = kfuse::test::is_dropped(0.1, random, r, c) ? 0 : normed / 0.9;
      }
      return values;
    };
    auto result = bench::output("y", y, dropped, 6);
    result.floor = 1;  // the terms, not their sum, are what is rounded
    return {.fused =
                [=](bench::Context<Space> const& on) {
                  kfuse::residual_layernorm_dropout(on.space, x, residual, weight, bias, y,
                                                    {.x_bias = x_bias, .dropout = 0.1, .random = random}, on.workspace);
                },
            .eager =
                [=](bench::Context<Space> const& on) {
                  kfuse::fuse(on.space, "kfuse::eager::bias", kfuse::load(x) | kfuse::bias(x_bias) | kfuse::store(y));
                  kfuse::fuse(on.space, "kfuse::eager::add", kfuse::load(y) | kfuse::add(residual) | kfuse::store(y));
                  kfuse::layernorm(on.space, y, weight, bias, y, {}, on.workspace);
                  kfuse::fuse(on.space, "kfuse::eager::dropout",
                              kfuse::load(y) | kfuse::dropout(0.1, random) | kfuse::store(y));
                },
            .outputs = {result}};
  }
};

bench::Register<ResidualLayerNormDropout> const entry("residual_layernorm_dropout",
                                                      "y = dropout(layernorm(x + x_bias + residual) * weight + bias)",
                                                      {{"rows", 16384}, {"columns", 4096}}, {{.at_least = 0.93}});

}  // namespace
