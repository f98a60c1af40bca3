// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/add_layernorm.hpp>

#include <cmath>

#include "bench.hpp"

namespace {

struct AddLayerNorm {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"];
    auto const x = bench::random<Element>(memory, -1, 3, rows, columns);
    auto const residual = bench::random<Element>(memory, -1, 1, rows, columns);
    auto const weight = bench::random<Element>(memory, 0.5, 1.5, columns);
    auto const bias = bench::random<Element>(memory, -1, 1, columns);
    auto const sum = bench::empty<Element>(memory, rows, columns), y = bench::empty<Element>(memory, rows, columns);

    auto const added = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(x, r);
      auto const other = bench::row<Space>(residual, r);
      for (int c = 0; c < columns; ++c) values[c] += other[c];
      return values;
    };
    auto const normed = [=](std::ptrdiff_t r) {
      auto values = added(r);
      auto const w = bench::row<Space>(weight), b = bench::row<Space>(bias);
      double mean = 0, squares = 0;
      for (double const v : values) mean += v / columns;
      for (double const v : values) squares += (v - mean) * (v - mean) / columns;
      for (int c = 0; c < columns; ++c) values[c] = (values[c] - mean) / std::sqrt(squares + 1e-5) * w[c] + b[c];
      return values;
    };
    // In eager the sum is rounded first, where it may be as large as 4: to 2^-7, which the norm makes up to 0.0091 of,
    // and rounding y near 1 adds 0.0039.
    auto result = bench::output("y", y, normed, 4);
    result.floor = 1;  // the terms, not their sum, are what is rounded
    return {.fused =
                [=](bench::Context<Space> const& on) {
                  kfuse::add_layernorm(on.space, x, residual, weight, bias, sum, y, {}, on.workspace);
                },
            .eager =
                [=](bench::Context<Space> const& on) {
                  kfuse::fuse(on.space, "kfuse::eager::add", kfuse::load(x) | kfuse::add(residual) | kfuse::store(sum));
                  kfuse::layernorm(on.space, sum, weight, bias, y, {}, on.workspace);
                },
            .outputs = {bench::output("sum", sum, added), result}};
  }
};

bench::Register<AddLayerNorm> const entry("add_layernorm", "sum = x + residual, y = layernorm(sum) * weight + bias",
                                          {{"rows", 16384}, {"columns", 4096}});

}  // namespace
