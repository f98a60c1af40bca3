// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/batchnorm.hpp>

#include <cmath>
#include <vector>

#include "bench.hpp"

namespace {

// Parameters in float where values are narrower, as models that run in 16 bits keep them.
template <class Element, class Space>
struct Parameters {
  using Parameter = kfuse::Real<Element>;
  kfuse::Tensor<Parameter, 1> mean, variance, weight, bias;

  Parameters(bench::Memory<Space>& memory, int channels)
      : mean(bench::random<Parameter>(memory, -1, 1, channels)),
        variance(bench::random<Parameter>(memory, 0.5, 1.5, channels)),
        weight(bench::random<Parameter>(memory, 0.5, 1.5, channels)),
        bias(bench::random<Parameter>(memory, -1, 1, channels)) {}

  // By definition, where channel(c) is that of column c.
  template <class Channel>
  std::vector<double> normed(std::vector<double> values, Channel const& channel) const {
    auto const m = bench::row<Space>(mean), v = bench::row<Space>(variance), w = bench::row<Space>(weight),
               b = bench::row<Space>(bias);
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto const c = channel(i);
      double const y = (values[i] - m[c]) / std::sqrt(v[c] + 1e-5) * w[c] + b[c];
      values[i] = y < 0 ? 0 : y;
    }
    return values;
  }
  // `x` and `y` in either layout.
  template <class X>
  bench::Case<Space> run(X const& x, X const& y, bench::Output result) const {
    auto const call = [=, *this](bench::Context<Space> const& on, X const& from, kfuse::Activation activation) {
      kfuse::batchnorm(on.space, from, mean, variance, weight, bias, y, {.activation = activation});
    };
    auto const flat = kfuse::make_tensor(y.data, int(y.size() / y.extent(X::rank - 1)), y.extent(X::rank - 1));
    result.floor = 1;  // the terms, not their sum, are what is rounded
    return {.fused = [=](bench::Context<Space> const& on) { call(on, x, kfuse::Activation::relu); },
            .eager =
                [=](bench::Context<Space> const& on) {
                  call(on, x, kfuse::Activation::none);
                  kfuse::fuse(on.space, "kfuse::eager::relu", kfuse::load(flat) | kfuse::relu() | kfuse::store(flat));
                },
            .outputs = {result}};
  }
};

struct ChannelsLast {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes.product({"batch", "height", "width"}), channels = sizes["channels"];
    auto const x = bench::random<Element>(memory, -1, 1, rows, channels);
    Parameters<Element, Space> const parameters(memory, channels);
    auto const y = bench::empty<Element>(memory, rows, channels);
    return parameters.run(x, y, bench::output("y", y, [=](std::ptrdiff_t r) {
                            return parameters.normed(bench::row<Space>(x, r), [](std::size_t c) { return c; });
                          }));
  }
};

struct Nchw {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const batch = sizes["batch"], channels = sizes["channels"], positions = sizes.product({"height", "width"});
    auto const x = bench::random<Element>(memory, -1, 1, batch, channels, positions);
    Parameters<Element, Space> const parameters(memory, channels);
    auto const y = bench::empty<Element>(memory, batch, channels, positions);
    return parameters.run(x, y, bench::output("y", y, [=](std::ptrdiff_t r) {
                            return parameters.normed(bench::row<Space>(x, r),
                                                     [=](std::size_t) { return r % channels; });
                          }));
  }
};

bench::Sizes const sizes{{"batch", 64}, {"height", 56}, {"width", 56}, {"channels", 256}};
bench::Register<ChannelsLast> const last("batchnorm", "y = relu(batchnorm(x)), channels last", sizes,
                                         {{.at_least = 0.95}});
bench::Register<Nchw> const nchw("batchnorm_nchw", "y = relu(batchnorm(x)), channels before positions", sizes,
                                 {{.at_least = 0.95}});

}  // namespace
