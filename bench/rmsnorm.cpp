// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/rmsnorm.hpp>

#include <cmath>

#include "bench.hpp"

namespace {

struct RmsNorm {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"];
    auto const x = bench::random<Element>(memory, -1, 1, rows, columns);
    auto const weight = bench::random<Element>(memory, 0.5, 1.5, columns);
    auto const y = bench::empty<Element>(memory, rows, columns);

    auto const normed = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(x, r);
      auto const w = bench::row<Space>(weight);
      double squares = 0;
      for (double const v : values) squares += v * v;
      for (int c = 0; c < columns; ++c) values[c] *= w[c] / std::sqrt(squares / columns + 1e-6);
      return values;
    };
    return {.fused = [=](bench::Context<Space> const& on) { kfuse::rmsnorm(on.space, x, weight, y, {}, on.workspace); },
            .outputs = {bench::output("y", y, normed)}};
  }
};

bench::Register<RmsNorm> const entry("rmsnorm", "y = rmsnorm(x) * weight", {{"rows", 16384}, {"columns", 4096}},
                                     {{{{"rows", 524288}, {"columns", 128}}, 0.96},
                                      {{{"rows", 131072}, {"columns", 512}}, 0.96},
                                      {{{"rows", 65536}, {"columns", 1024}}, 0.96},
                                      {{{"rows", 32768}, {"columns", 2048}}, 0.96},
                                      {{{"rows", 16384}, {"columns", 4096}}, 0.96},
                                      {{{"rows", 8192}, {"columns", 8192}}, 0.92},
                                      {{{"rows", 4096}, {"columns", 16384}}, 0.92},
                                      {{{"rows", 1024}, {"columns", 65536}}, 0.92},
                                      {.sizes = {{"rows", 1}}, .most_seconds = 1.9e-6, .calls = 128},
                                      {.sizes = {{"rows", 64}}, .most_seconds = 2.6e-6, .calls = 128}});

}  // namespace
