// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/bias_activation.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

#include "bench.hpp"

namespace {

constexpr auto gelu = kfuse::Activation::gelu;

double gelu_of(double v) {
  return v / 2 * std::erfc(-v / std::sqrt(2.0));
}

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
      for (int c = 0; c < columns; ++c) values[c] = gelu_of(values[c] + b[c]);
      return values;
    };
    auto result = bench::output("y", y, activated, 3);
    result.floor = 1;  // where gelu is small, its input's rounding is not
    return {.fused = [=](bench::Context<Space> const& on) { kfuse::bias_activation(on.space, x, bias, y, gelu); },
            .eager =
                [=](bench::Context<Space> const& on) {
                  kfuse::fuse(on.space, "kfuse::eager::bias", kfuse::load(x) | kfuse::bias(bias) | kfuse::store(y));
                  kfuse::fuse(on.space, "kfuse::eager::gelu", kfuse::load(y) | kfuse::gelu() | kfuse::store(y));
                },
            .outputs = {result}};
  }
};

struct BiasActivationMask {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"];
    auto const x = bench::random<Element>(memory, -3, 3, rows, columns);
    auto const bias = bench::random<Element>(memory, -1, 1, columns);
    auto const mask = bench::random<std::uint8_t>(memory, 0, 10, rows, columns);  // a tenth is hidden
    auto const y = bench::empty<Element>(memory, rows, columns);

    auto const masked = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(x, r);
      auto const b = bench::row<Space>(bias), seen = bench::row<Space>(mask, r);
      for (int c = 0; c < columns; ++c) values[c] = seen[c] == 0 ? 0 : gelu_of(values[c] + b[c]);
      return values;
    };
    auto result = bench::output("y", y, masked, 3);
    result.floor = 1;
    return {.fused = [=](bench::Context<Space> const& on) { kfuse::bias_activation(on.space, x, bias, mask, y, gelu); },
            .eager =
                [=](bench::Context<Space> const& on) {
                  kfuse::fuse(on.space, "kfuse::eager::bias", kfuse::load(x) | kfuse::bias(bias) | kfuse::store(y));
                  kfuse::fuse(on.space, "kfuse::eager::gelu", kfuse::load(y) | kfuse::gelu() | kfuse::store(y));
                  kfuse::fuse(on.space, "kfuse::eager::mask", kfuse::load(y) | kfuse::mask(mask, 0) | kfuse::store(y));
                },
            .outputs = {result}};
  }
};

bench::Register<BiasActivation> const entry("bias_activation", "y = gelu(x + bias)",
                                            {{"rows", 16384}, {"columns", 4096}});
bench::Register<BiasActivationMask> const with_mask("bias_activation_mask", "y = mask ? gelu(x + bias) : 0",
                                                    {{"rows", 16384}, {"columns", 4096}}, {{.at_least = 0.97}});

}  // namespace
