// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/add_multiply_relu.hpp>

#include <algorithm>
#include <vector>

#include "bench.hpp"

namespace {

struct AddMultiplyRelu {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"];
    auto const x = bench::random<Element>(memory, -1, 1, rows, columns);
    auto const addend = bench::random<Element>(memory, -1, 1, rows, columns);
    auto const factor = bench::random<Element>(memory, -1, 1, rows, columns);
    auto const y = bench::empty<Element>(memory, rows, columns);

    auto const product = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(x, r);
      auto const a = bench::row<Space>(addend, r), f = bench::row<Space>(factor, r);
      for (int c = 0; c < columns; ++c) values[c] = std::max(0.0, (values[c] + a[c]) * f[c]);
      return values;
    };
    return {.fused = [=](bench::Context<Space> const& on) { kfuse::add_multiply_relu(on.space, x, addend, factor, y); },
            .eager =
                [=](bench::Context<Space> const& on) {
                  kfuse::fuse(on.space, "kfuse::eager::add", kfuse::load(x) | kfuse::add(addend) | kfuse::store(y));
                  kfuse::fuse(on.space, "kfuse::eager::multiply",
                              kfuse::load(y) | kfuse::multiply(factor) | kfuse::store(y));
                  kfuse::fuse(on.space, "kfuse::eager::relu", kfuse::load(y) | kfuse::relu() | kfuse::store(y));
                },
            .outputs = {bench::output("y", y, product, 2)}};
  }
};

bench::Register<AddMultiplyRelu> const entry("add_multiply_relu", "y = relu((x + addend) * factor)",
                                             {{"rows", 16384}, {"columns", 4096}});

}  // namespace
