// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/bias_activation_dropout_residual.hpp>

#include <cmath>
#include <vector>

#include "../tests/dropped.hpp"
#include "bench.hpp"

namespace {

constexpr kfuse::RandomState random_state{1, 2};

// One chance in `one_in` to be dropped; none if it is 0.
template <int one_in>
struct BiasActivationDropoutResidual {
  static constexpr double p = one_in == 0 ? 0 : 1.0 / one_in;

  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"];
    auto const x = bench::random<Element>(memory, -3, 3, rows, columns);
    auto const residual = bench::random<Element>(memory, -3, 3, rows, columns);
    auto const bias = bench::random<Element>(memory, -1, 1, columns);
    auto const y = bench::empty<Element>(memory, rows, columns);

    auto const sum = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(residual, r);
      auto const v = bench::row<Space>(x, r), b = bench::row<Space>(bias);
      for (int c = 0; c < columns; ++c) {
        double const biased = v[c] + b[c];
        if (!kfuse::test::is_dropped(p, random_state, r, c))
          values[c] += biased / 2 * std::erfc(-biased / std::sqrt(2.0)) / (1 - p);
      }
      return values;
    };
    auto result = bench::output("y", y, sum, 4);
    result.floor = 4;  // terms that cancel were rounded when they were larger
    return {.fused =
                [=](bench::Context<Space> const& on) {
                  kfuse::bias_activation_dropout_residual(
                      on.space, x, bias, residual, y,
                      {.activation = kfuse::Activation::gelu, .dropout = p, .random = random_state});
                },
            .eager =
                [=](bench::Context<Space> const& on) {
                  kfuse::fuse(on.space, "kfuse::eager::bias", kfuse::load(x) | kfuse::bias(bias) | kfuse::store(y));
                  kfuse::fuse(on.space, "kfuse::eager::gelu", kfuse::load(y) | kfuse::gelu() | kfuse::store(y));
                  if (p > 0)
                    kfuse::fuse(on.space, "kfuse::eager::dropout",
                                kfuse::load(y) | kfuse::dropout(p, random_state) | kfuse::store(y));
                  kfuse::fuse(on.space, "kfuse::eager::add", kfuse::load(y) | kfuse::add(residual) | kfuse::store(y));
                },
            .outputs = {result}};
  }
};

bench::Register<BiasActivationDropoutResidual<10>> const entry("bias_activation_dropout_residual",
                                                               "y = residual + dropout(gelu(x + bias))",
                                                               {{"rows", 16384}, {"columns", 4096}});
bench::Register<BiasActivationDropoutResidual<0>> const without_dropout("bias_activation_residual",
                                                                        "y = residual + gelu(x + bias)",
                                                                        {{"rows", 16384}, {"columns", 4096}},
                                                                        {{.at_least = 0.97}});

}  // namespace
