// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/bias_activation.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "activations.hpp"
#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::Activation;
using kfuse::bf16;
using kfuse::bias_activation;
using kfuse::fp16;
using namespace kfuse::test;

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<double> whole(std::vector<double> x) {
  for (double& v : x) v = std::floor(v);
  return x;
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
        auto const expected = activated(activation, x, b);
        GuardedMatrix<Element> const in(rows, columns, x, place), out(rows, columns, place);
        bias_activation(space, in.const_view(), view_of<Element>(b, columns), out.view(), activation);
        CHECK(deviation(out.values(), expected) <= tolerance<Element>());
        CHECK(out.guards_intact());
        bias_activation(space, in.view(), view_of<Element>(b, columns), in.view(), activation);
        CHECK(in.values() == out.values());
      }
}

TEST_CASE("bias_activation is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("bias_activation", {}, [&]<class Element>(RandomCase& c) {
    Activation const activation = all_activations[c.seed % std::size(all_activations)];
    auto const x = c.values<Element>(0), b = c.values<Element>(1, c.columns);
    auto const in = c.matrix<Element>(0, x), out = c.matrix<Element>(1);
    auto const bias = view_of<Element>(b, c.columns);
    auto const expected = activated(activation, x, b);
    auto const scales = RowScales(c.columns).with(activated(Activation::none, x, b)).with(expected).get();
    bias_activation(space, in.const_view(), bias, out.view(), activation);
    c.compare("y of activation " + std::to_string(int(activation)), out, expected, scales);
    c.unchanged("x", in, x);
    c.same_bits("y", [&](int first, int count) {
      auto const y = view_of_nans<Element>(count, c.columns);
      bias_activation(space, rows_of(in, first, count), bias, y, activation);
      return elements(y);
    });
  });
}

TEST_CASE("bias_activation with a mask is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("bias_activation_mask", {}, [&]<class Element>(RandomCase& c) {
    Activation const activation = all_activations[c.seed % std::size(all_activations)];
    constexpr double masked_values[] = {0, -1.5, infinity, -infinity};
    double const value = masked_values[c.seed / 8 % 4];
    auto const x = c.values<Element>(0), b = c.values<Element>(1, c.columns);
    auto const shown = whole(random_values(x.size(), c.seed, 0, 3));
    auto const in = c.matrix<Element>(0, x), out = c.matrix<Element>(1);
    auto const mask = c.matrix<std::uint8_t>(2, shown);
    auto const bias = view_of<Element>(b, c.columns);
    auto expected = activated(activation, x, b);
    for (std::size_t i = 0; i < x.size(); ++i)
      if (shown[i] == 0) expected[i] = value;
    auto const scales = RowScales(c.columns).with(activated(Activation::none, x, b)).with(expected).get();
    bias_activation(space, in.const_view(), bias, mask.const_view(), out.view(), activation, value);
    c.compare("y of activation " + std::to_string(int(activation)), out, expected, scales);
    c.unchanged("mask", mask, shown);
    c.same_bits("y", [&](int first, int count) {
      auto const y = view_of_nans<Element>(count, c.columns);
      bias_activation(space, rows_of(in, first, count), bias, rows_of(mask, first, count), y, activation, value);
      return elements(y);
    });
  });
}

TEST_CASE("what is masked is the value, whatever x is, and 0 if none is given") {
  auto const x = view_of<float>({1, NAN, infinity, -2, 3, -infinity}, 2, 3);
  auto const b = view_of<float>({1, 1, 1}, 3);
  auto const mask = view_of<std::uint8_t>({1, 0, 0, 2, 255, 0}, 2, 3);
  auto const y = view_of_nans<float>(2, 3);
  bias_activation(Space(), x, b, mask, y, Activation::relu);
  CHECK(download(y) == std::vector<double>{2, 0, 0, 0, 4, 0});
  bias_activation(Space(), x, b, mask, x, Activation::none, -7);
  CHECK(download(x) == std::vector<double>{2, -7, -7, -1, 4, -7});
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
TEST_CASE("bias_activation of nothing writes nothing") {
  bias_activation(Space(), view_of_nans<float>(0, 4), view_of_nans<float>(4), view_of_nans<float>(0, 4),
                  Activation::relu);
}

TEST_CASE("bias_activation refuses what does not fit, and writes nothing") {
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4), y = view_of_nans<float>(3, 4);
  auto const b = view_of<float>({1, 2, 3}, 3);  // one for each row
  CHECK(contains(error_of([&] { bias_activation(Space(), x, b, y, Activation::relu); }),
                 "kfuse::bias_activation: bias: has 3 entries, but rows have 4 columns"));
  auto const four = view_of<float>({1, 2, 3, 4}, 4);
  auto const narrow = view_of<std::uint8_t>(std::vector<double>(9, 1), 3, 3);
  CHECK(contains(error_of([&] { bias_activation(Space(), x, four, narrow, y, Activation::relu); }),
                 "kfuse::bias_activation: mask: shape [3, 3] does not match the chain's [3, 4]"));
  for (int const number : {-1, 8, 99})
    CHECK(contains(error_of([&] { bias_activation(Space(), x, four, y, Activation(number)); }),
                   "kfuse::bias_activation: activation: there is none with the number " + std::to_string(number)));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("bias_activation moves its arguments once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 64}, {64, 1}};
  kfuse::Tensor<bf16, 1> const b{nullptr, {64}, {1}};
  kfuse::Tensor<std::uint8_t, 2> const mask{nullptr, {10, 64}, {64, 1}};
  CHECK(kfuse::bias_activation_traffic(Space(), x, b, x, Activation::gelu).bytes() == 2 * 10 * 64 * 2 + 64 * 2);
  CHECK(kfuse::bias_activation_traffic(Space(), x, b, mask, x, Activation::gelu).bytes() ==
        2 * 10 * 64 * 2 + 64 * 2 + 10 * 64);
}

}  // namespace
