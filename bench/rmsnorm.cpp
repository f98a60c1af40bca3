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

bench::Register<RmsNorm> const entry("rmsnorm", "y = rmsnorm(x) * weight", {{"rows", 16384}, {"columns", 4096}});

}  // namespace
