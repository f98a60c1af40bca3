// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/bias_activation.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::Activation;
using kfuse::bf16;
using kfuse::bias_activation;
using kfuse::fp16;
using namespace kfuse::test;

constexpr Activation all_activations[] = {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                          Activation::silu};

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return std::isnan(x) ? x : std::max(x, 0.0);
    case Activation::gelu:
      return x / 2 * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return NAN;
}

// One row of values with a bias of zero.
template <class Element>
std::vector<double> activations(Activation activation, std::vector<double> const& x) {
  int const n = int(x.size());
  auto const y = view_of_nans<Element>(1, n);
  bias_activation(Space(), view_of<Element>(x, 1, n), view_of<Element>(std::vector<double>(n, 0), n), y, activation);
  return download(y);
}

TEST_CASE_TEMPLATE("bias_activation agrees with its definition in double", Element, double, float, bf16, fp16) {
  Space const space = another_instance();
  int const rows = 3;
  for (Activation const activation : all_activations)
    for (int const columns : {1, 33, 3072, 20000})
      for (Place2D const place : {Place2D{0, 0}, Place2D{1, 3}}) {
        CAPTURE(int(activation));
        CAPTURE(columns);
        auto const x = random_values<Element>(std::size_t(rows) * columns, columns, -5, 5);
        auto const b = random_values<Element>(columns, 2);
        std::vector<double> expected(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) expected[i] = activated(activation, x[i] + b[i % columns]);
        GuardedMatrix<Element> const in(rows, columns, x, place), out(rows, columns, place);
        bias_activation(space, in.const_view(), view_of<Element>(b, columns), out.view(), activation);
        CHECK(deviation(out.values(), expected) <= tolerance<Element>());
        CHECK(out.guards_intact());
        bias_activation(space, in.view(), view_of<Element>(b, columns), in.view(), activation);
        CHECK(in.values() == out.values());
      }
}

// CASES P29
TEST_CASE("silu far from zero") {
  auto const y = activations<float>(Activation::silu, {-1, -20, -87.5, 1e4, -1e4});
  CHECK(deviation({y[0], y[1]}, {-0.268941421, -4.122307e-8}, 0) <= 1e-6);
  CHECK(deviation({y[2]}, {-8.734557e-37}, 0) <= 1e-3);
  CHECK(y[3] == 1e4);
  CHECK(y[4] == 0);
}
TEST_CASE("the two kinds of gelu are told apart") {
  std::vector<double> const x{1, -1, 3, -3};
  CHECK(deviation(activations<float>(Activation::gelu, x), {0.841344746, -0.158655254, 2.995950306, -0.00404969410},
                  1) <= 1e-6);
  CHECK(deviation(activations<float>(Activation::gelu_tanh, x),
                  {0.841191991, -0.158808009, 2.996362608, -0.00363739208}, 1) <= 1e-6);
}
TEST_CASE_TEMPLATE("activations are finite for all that is finite, and NaN for NaN", Element, double, float, bf16,
                   fp16) {
  double const largest = std::is_same_v<Element, fp16> ? 65504 : 3.3e38;
  for (Activation const activation : all_activations) {
    CAPTURE(int(activation));
    auto const y = activations<Element>(activation, {-largest, -1e4, -88, -80, 0, 1e4, largest, NAN});
    for (int i = 0; i < 7; ++i) CHECK(std::isfinite(y[i]));
    for (int i = 0; i < 4; ++i) CHECK((activation == Activation::none || std::abs(y[i]) < 1e-6));
    CHECK(y[4] == 0);
    CHECK(y[5] == rounded<Element>(1e4));
    CHECK(y[6] == doctest::Approx(largest).epsilon(1e-2));
    CHECK(std::isnan(y[7]));
  }
}

TEST_CASE("bias_activation of nothing writes nothing") {
  bias_activation(Space(), view_of_nans<float>(0, 4), view_of_nans<float>(4), view_of_nans<float>(0, 4),
                  Activation::relu);
}

TEST_CASE("bias_activation refuses what does not fit, and writes nothing") {
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4), y = view_of_nans<float>(3, 4);
  auto const b = view_of<float>({1, 2, 3}, 3);  // one for each row
  CHECK(contains(error_of([&] { bias_activation(Space(), x, b, y, Activation::relu); }),
                 "kfuse::bias_activation: bias: has 3 entries, but rows have 4 columns"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("bias_activation moves its arguments once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 64}, {64, 1}};
  kfuse::Tensor<bf16, 1> const b{nullptr, {64}, {1}};
  CHECK(kfuse::bias_activation_traffic(Space(), x, b, x, Activation::gelu).bytes() == 2 * 10 * 64 * 2 + 64 * 2);
}

}  // namespace
