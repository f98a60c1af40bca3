// SPDX-License-Identifier: Apache-2.0
// The definitions of activations.
#ifndef KFUSE_TESTS_ACTIVATIONS_HPP
#define KFUSE_TESTS_ACTIVATIONS_HPP

#include <kfuse/fused/stage/activation.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace kfuse::test {

constexpr Activation all_activations[] = {Activation::none,      Activation::relu,       Activation::gelu,
                                          Activation::gelu_tanh, Activation::gelu_quick, Activation::silu,
                                          Activation::sigmoid,   Activation::tanh};

// With more digits than double has, and the limit at -infinity.
inline double activated(Activation activation, double given) {
  long double const x = given, pi = std::acos(-1.0L);
  auto const times_sigmoid = [](long double factor, long double y) { return factor / (1 + std::exp(-y)); };
  bool const falls_to_zero = activation == Activation::gelu || activation == Activation::gelu_tanh ||
                             activation == Activation::gelu_quick || activation == Activation::silu;
  if (falls_to_zero && given == -std::numeric_limits<double>::infinity()) return 0;
  switch (activation) {
    case Activation::none:
      return given;
    case Activation::relu:
      return given < 0 ? 0 : given;
    case Activation::gelu:
      return double(x / 2 * std::erfc(-x / std::sqrt(2.0L)));
    case Activation::gelu_tanh:  // 1 + tanh(z) = 2 / (1 + exp(-2 z))
      return double(times_sigmoid(x, 2 * std::sqrt(2 / pi) * (x + 0.044715L * x * x * x)));
    case Activation::gelu_quick:
      return double(times_sigmoid(x, 1.702L * x));
    case Activation::silu:
      return double(times_sigmoid(x, x));
    case Activation::sigmoid:
      return double(times_sigmoid(1, x));
    case Activation::tanh:
      return double(std::tanh(x));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// activation(x + bias), for rows as long as the bias
inline std::vector<double> activated(Activation activation, std::vector<double> x, std::vector<double> const& bias) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = activated(activation, x[i] + bias[i % bias.size()]);
  return x;
}

// What the errors of a row are relative to, beside its results: the numbers that go into them. An activation that falls
// to zero makes small numbers of large ones, and their rounding with them.
class RowScales {
 public:
  explicit RowScales(int columns) : columns_(columns) {}
  RowScales& with(std::vector<double> const& values) {
    scales_.resize(values.size() / columns_, 0);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (std::isfinite(values[i])) scales_[i / columns_] = std::max(scales_[i / columns_], std::abs(values[i]));
    return *this;
  }
  std::vector<double> const& get() const { return scales_; }

 private:
  std::size_t columns_;
  std::vector<double> scales_;
};

}  // namespace kfuse::test

#endif
