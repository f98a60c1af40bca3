// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/softmax.hpp>

#include <cmath>

#include "bench.hpp"

namespace {

struct Softmax {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"];
    auto const x = bench::random<Element>(memory, -4, 4, rows, columns);
    auto const y = bench::empty<Element>(memory, rows, columns);

    auto const expected = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(x, r);
      double sum = 0;
      for (double& v : values) sum += v = std::exp(v / 2);
      for (double& v : values) v /= sum;
      return values;
    };
    auto result = bench::output("y", y, expected);
    result.floor = 1e-4;  // results are small; below it fp16 has fewer digits
    return {
        .fused = [=](bench::Context<Space> const& on) { kfuse::softmax(on.space, x, y, {.scale = 0.5}, on.workspace); },
        .eager =
            [=](bench::Context<Space> const& on) {
              kfuse::fuse(on.space, "kfuse::eager::scale", kfuse::load(x) | kfuse::scale(0.5) | kfuse::store(y));
              kfuse::softmax(on.space, y, y, {}, on.workspace);
            },
        .outputs = {result}};
  }
};

bench::Register<Softmax> const entry("softmax", "y = softmax(x / 2)", {{"rows", 16384}, {"columns", 4096}},
                                     {{.at_least = 0.97},
                                      {.sizes = {{"rows", 4096}, {"columns", 32768}}, .at_least = 0.92}});

}  // namespace
