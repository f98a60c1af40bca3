// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/log_softmax.hpp>

#include <cmath>

#include "bench.hpp"

namespace {

struct LogSoftmax {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"];
    auto const x = bench::random<Element>(memory, -4, 4, rows, columns);
    auto const y = bench::empty<Element>(memory, rows, columns);

    auto const expected = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(x, r);
      double sum = 0;
      for (double const v : values) sum += std::exp(v);
      for (double& v : values) v -= std::log(sum);
      return values;
    };
    return {.fused = [=](bench::Context<Space> const& on) { kfuse::log_softmax(on.space, x, y, on.workspace); },
            .outputs = {bench::output("y", y, expected)}};
  }
};

bench::Register<LogSoftmax> const entry("log_softmax", "y = log(softmax(x))", {{"rows", 16384}, {"columns", 4096}});

}  // namespace
