// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/add_rmsnorm.hpp>

#include <cmath>

#include "bench.hpp"

namespace {

struct AddRmsNorm {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"];
    auto const x = bench::random<Element>(memory, -1, 1, rows, columns);
    auto const residual = bench::random<Element>(memory, -1, 1, rows, columns);
    auto const weight = bench::random<Element>(memory, 0.5, 1.5, columns);
    auto const sum = bench::empty<Element>(memory, rows, columns), y = bench::empty<Element>(memory, rows, columns);

    auto const added = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(x, r);
      auto const other = bench::row<Space>(residual, r);
      for (int c = 0; c < columns; ++c) values[c] += other[c];
      return values;
    };
    auto const normed = [=](std::ptrdiff_t r) {
      auto values = added(r);
      auto const w = bench::row<Space>(weight);
      double squares = 0;
      for (double const v : values) squares += v * v;
      for (int c = 0; c < columns; ++c) values[c] *= w[c] / std::sqrt(squares / columns + 1e-6);
      return values;
    };
    return {.fused =
                [=](bench::Context<Space> const& on) {
                  kfuse::add_rmsnorm(on.space, x, residual, weight, sum, y, {}, on.workspace);
                },
            .eager =
                [=](bench::Context<Space> const& on) {
                  kfuse::fuse(on.space, "kfuse::eager::add", kfuse::load(x) | kfuse::add(residual) | kfuse::store(sum));
                  kfuse::rmsnorm(on.space, sum, weight, y, {}, on.workspace);
                },
            .outputs = {bench::output("sum", sum, added), bench::output("y", y, normed, 2)}};
  }
};

bench::Register<AddRmsNorm> const entry("add_rmsnorm", "sum = x + residual, y = rmsnorm(sum) * weight",
                                        {{"rows", 16384}, {"columns", 4096}},
                                        {{{{"rows", 16384}, {"columns", 4096}}, 0.98},
                                         {{{"rows", 8192}, {"columns", 8192}}, 0.93},
                                         {{{"rows", 4096}, {"columns", 16384}}, 0.93},
                                         {{{"rows", 2048}, {"columns", 32768}}, 0.93},
                                         {.sizes = {{"rows", 1}}, .most_seconds = 1.9e-6, .calls = 128},
                                         {.sizes = {{"rows", 64}}, .most_seconds = 2.6e-6, .calls = 128}});

}  // namespace
