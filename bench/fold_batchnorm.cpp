// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/fold_batchnorm.hpp>

#include <cmath>

#include "bench.hpp"

namespace {

struct FoldBatchNorm {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    using Parameter = kfuse::Real<Element>;
    int const out = sizes["out"], in = sizes["in"];
    auto const weight = bench::random<Element>(memory, -1, 1, out, in);
    auto const bias = bench::random<Element>(memory, -1, 1, out);
    auto const mean = bench::random<Parameter>(memory, -1, 1, out);
    auto const variance = bench::random<Parameter>(memory, 0.5, 1.5, out);
    auto const bn_weight = bench::random<Parameter>(memory, 0.5, 1.5, out);
    auto const bn_bias = bench::random<Parameter>(memory, -1, 1, out);
    auto const folded = bench::empty<Element>(memory, out, in);
    auto const folded_bias = bench::empty<Element>(memory, out);

    auto const factors = [=] {
      auto values = bench::row<Space>(bn_weight);
      auto const v = bench::row<Space>(variance);
      for (int o = 0; o < out; ++o) values[o] /= std::sqrt(v[o] + 1e-5);
      return values;
    };
    auto const weights = [=](std::ptrdiff_t o) {
      auto values = bench::row<Space>(weight, o);
      double const factor = factors()[o];
      for (double& v : values) v *= factor;
      return values;
    };
    auto const biases = [=](std::ptrdiff_t) {
      auto values = bench::row<Space>(bias);
      auto const m = bench::row<Space>(mean), b = bench::row<Space>(bn_bias), factor = factors();
      for (int o = 0; o < out; ++o) values[o] = (values[o] - m[o]) * factor[o] + b[o];
      return values;
    };
    auto offsets = bench::output("bias", folded_bias, biases);
    offsets.floor = 1;  // the terms, not their sum, are what is rounded
    return {.fused =
                [=](bench::Context<Space> const& on) {
                  kfuse::fold_batchnorm(on.space, weight, bias, mean, variance, bn_weight, bn_bias, folded,
                                        folded_bias);
                },
            .outputs = {bench::output("weight", folded, weights), offsets}};
  }
};

bench::Register<FoldBatchNorm> const entry("fold_batchnorm",
                                           "weight and bias of a layer that does the batchnorm after it, too",
                                           {{"out", 4096}, {"in", 4096}});

}  // namespace
