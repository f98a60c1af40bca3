// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/layernorm.hpp>

#include <cmath>

#include "bench.hpp"

namespace {

struct LayerNorm {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"];
    auto const x = bench::random<Element>(memory, -1, 3, rows, columns);
    auto const weight = bench::random<Element>(memory, 0.5, 1.5, columns);
    auto const bias = bench::random<Element>(memory, -1, 1, columns);
    auto const y = bench::empty<Element>(memory, rows, columns);

    auto const normed = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(x, r);
      auto const w = bench::row<Space>(weight), b = bench::row<Space>(bias);
      double mean = 0, squares = 0;
      for (double const v : values) mean += v / columns;
      for (double const v : values) squares += (v - mean) * (v - mean) / columns;
      for (int c = 0; c < columns; ++c) values[c] = (values[c] - mean) / std::sqrt(squares + 1e-5) * w[c] + b[c];
      return values;
    };
    auto result = bench::output("y", y, normed);
    result.floor = 1;  // the terms, not their sum, are what is rounded
    return {
        .fused =
            [=](bench::Context<Space> const& on) { kfuse::layernorm(on.space, x, weight, bias, y, {}, on.workspace); },
        .outputs = {result}};
  }
};

bench::Register<LayerNorm> const entry("layernorm", "y = layernorm(x) * weight + bias",
                                       {{"rows", 16384}, {"columns", 4096}},
                                       {{{{"rows", 524288}, {"columns", 128}}, 0.93},
                                        {{{"rows", 131072}, {"columns", 512}}, 0.93},
                                        {{{"rows", 65536}, {"columns", 1024}}, 0.93},
                                        {{{"rows", 32768}, {"columns", 2048}}, 0.93},
                                        {{{"rows", 16384}, {"columns", 4096}}, 0.93},
                                        {{{"rows", 8192}, {"columns", 8192}}, 0.88},
                                        {{{"rows", 4096}, {"columns", 16384}}, 0.88},
                                        {{{"rows", 1024}, {"columns", 65536}}, 0.88}});

}  // namespace
