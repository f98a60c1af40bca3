// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/dropout.hpp>

#include <vector>

#include "../tests/dropped.hpp"
#include "bench.hpp"

namespace {

struct Dropout {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"];
    kfuse::RandomState const random{1, 2};
    auto const x = bench::random<Element>(memory, -1, 1, rows, columns);
    auto const y = bench::empty<Element>(memory, rows, columns);

    auto const dropped = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(x, r);
      for (int c = 0; c < columns; ++c) values[c] = kfuse::test::is_dropped(0.1, random, r, c) ? 0 : values[c] / 0.9;
      return values;
    };
    return {
        .fused = [=](bench::Context<Space> const& on) { kfuse::dropout(on.space, x, y, {.p = 0.1, .random = random}); },
        .outputs = {bench::output("y", y, dropped)}};
  }
};

bench::Register<Dropout> const entry("dropout", "y = dropout(x), a tenth of it", {{"rows", 16384}, {"columns", 4096}});

}  // namespace
