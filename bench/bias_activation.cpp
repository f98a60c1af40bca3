// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/bias_activation.hpp>

#include <cmath>

#include "bench.hpp"

namespace {

struct BiasActivation {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"];
    auto const x = bench::random<Element>(memory, -3, 3, rows, columns);
    auto const bias = bench::random<Element>(memory, -1, 1, columns);
    auto const y = bench::empty<Element>(memory, rows, columns);

    auto const activated = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(x, r);
      auto const b = bench::row<Space>(bias);
      for (int c = 0; c < columns; ++c) {
        double const v = values[c] + b[c];
        values[c] = v / 2 * std::erfc(-v / std::sqrt(2.0));
      }
      return values;
    };
    auto result = bench::output("y", y, activated, 3);
    result.floor = 1;  // where gelu is small, its input's rounding is not
    return {.fused =
                [=](bench::Context<Space> const& on) {
                  kfuse::bias_activation(on.space, x, bias, y, kfuse::Activation::gelu);
                },
            .eager =
                [=](bench::Context<Space> const& on) {
                  kfuse::fuse(on.space, "kfuse::eager::bias", kfuse::load(x) | kfuse::bias(bias) | kfuse::store(y));
                  kfuse::fuse(on.space, "kfuse::eager::gelu", kfuse::load(y) | kfuse::gelu() | kfuse::store(y));
                },
            .outputs = {result}};
  }
};

bench::Register<BiasActivation> const entry("bias_activation", "y = gelu(x + bias)",
                                            {{"rows", 16384}, {"columns", 4096}});

}  // namespace
