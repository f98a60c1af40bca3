// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/add_layernorm.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "norm_options.hpp"
#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::add_layernorm;
using kfuse::bf16;
using namespace kfuse::test;

struct Expected {
  std::vector<double> sum, y;
};

// The definition: sum = x + residual, y = (sum - mean) / sqrt(mean((sum - mean)^2) + epsilon) * weight + bias
Expected reference(std::vector<double> const& x, std::vector<double> const& residual, std::vector<double> const& weight,
                   std::vector<double> const& bias, double epsilon) {
  std::size_t const columns = weight.size(), rows = x.size() / columns;
  Expected e{x, x};
  for (std::size_t i = 0; i < x.size(); ++i) e.sum[i] = x[i] + residual[i];
  for (std::size_t r = 0; r < rows; ++r) {
    double const* const row = &e.sum[r * columns];
    long double mean = 0, variance = 0;  // for equal values, whose sum has more digits than a double
    for (std::size_t c = 0; c < columns; ++c) mean += row[c] / columns;
    for (std::size_t c = 0; c < columns; ++c) variance += (row[c] - mean) * (row[c] - mean) / columns;
    long double const root = std::sqrt(variance + epsilon);
    for (std::size_t c = 0; c < columns; ++c)  // zeros stay zeros
      e.y[r * columns + c] = (root == 0 ? 0 : double((row[c] - mean) / root)) * weight[c] + bias[c];
  }
  return e;
}

TEST_CASE_TEMPLATE("add_layernorm agrees with its definition in double, with and without the sum", Element, double,
                   float, bf16) {
  Space const space = another_instance();
  int const rows = 3;
  for (int const columns : {3, 64, 384, 1023, 4096, 20000})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 2}}) {
      CAPTURE(columns);
      CAPTURE(place.shift);
      auto const x = random_values<Element>(std::size_t(rows) * columns, columns, -1, 3);
      auto const r = random_values<Element>(std::size_t(rows) * columns, columns + 1);
      auto const w = random_values<Element>(columns, 2), b = random_values<Element>(columns, 3);
      auto const weight = view_of<Element>(w, columns), bias = view_of<Element>(b, columns);
      GuardedMatrix<Element> const in(rows, columns, x, place), residual(rows, columns, r, place);
      GuardedMatrix<Element> const sum(rows, columns, place), y(rows, columns, place), alone(rows, columns, place);
      add_layernorm(space, in.const_view(), residual.const_view(), weight, bias, sum.view(), y.view());
      add_layernorm(space, in.const_view(), residual.const_view(), weight, bias, alone.view());
      auto const expected = reference(x, r, w, b, 1e-5);
      CHECK(deviation(sum.values(), expected.sum) <= tolerance<Element>());
      CHECK(deviation(y.values(), expected.y, 1) <= tolerance<Element>());
      CHECK(alone.values() == y.values());
      CHECK(sum.guards_intact());
      CHECK(y.guards_intact());
      CHECK(alone.guards_intact());
    }
}

// What the numbers are that cancel in a row: the sum and its mean, and the bias, in units of the result. Weights are up
// to `weight`.
std::vector<double> scales(std::vector<double> const& sum, std::size_t columns, double epsilon, double weight = 2) {
  std::vector<double> result;
  for (std::size_t begin = 0; begin < sum.size(); begin += columns) {
    long double mean = 0, variance = 0;
    double largest = 0;
    for (std::size_t c = begin; c < begin + columns; ++c) mean += sum[c] / columns;
    for (std::size_t c = begin; c < begin + columns; ++c) {
      variance += (sum[c] - mean) * (sum[c] - mean) / columns;
      largest = std::max(largest, std::abs(sum[c]));
    }
    double const root = std::sqrt(double(variance) + epsilon);
    result.push_back(2 + (root == 0 ? 0 : weight * largest / root));
  }
  return result;
}

std::vector<double> zeros(std::size_t n) {
  return std::vector<double>(n, 0);
}

// CASES P01: rows whose sum is constant, or has a large mean, in every mix of types.
TEST_CASE_TEMPLATE("add_layernorm is as exact as the type of its result, whatever the others are", Y, float, bf16) {
  auto const check = [&]<class X, class R>() {
    for (int const columns : {300, 768, 4096, 12345}) {
      auto const one = view_of<float>(std::vector<double>(columns, 1), columns);
      auto const none = view_of<float>(zeros(columns), columns);
      auto const normed = [&](std::vector<double> const& x, std::vector<double> const& r) {
        auto const y = view_of_nans<Y>(1, columns);
        add_layernorm(Space(), view_of<X>(x, 1, columns), view_of<R>(r, 1, columns), one, none, y);
        return download(y);
      };
      CAPTURE(columns);
      for (double const value : {40000.3, 1234.57, 1.1, -0.03}) {
        CAPTURE(value);
        auto const constant = std::vector<double>(columns, value);
        CHECK(normed(rounded<X>(constant), zeros(columns)) == zeros(columns));
        CHECK(normed(zeros(columns), rounded<R>(constant)) == zeros(columns));
        CHECK(normed(std::vector<double>(columns, 2 - 0x1p-7), rounded<R>(constant)) == zeros(columns));
      }
      auto const x = random_values<X>(columns, 1), r = random_values<R>(columns, 2, 99, 101);
      auto const expected = reference(x, r, std::vector<double>(columns, 1), zeros(columns), 1e-5);
      CHECK(disagreement<Y>(normed(x, r), expected.y, columns, scales(expected.sum, columns, 1e-5)) == "");
    }
  };
  check.template operator()<float, float>();
  check.template operator()<bf16, float>();
  check.template operator()<float, bf16>();
  check.template operator()<bf16, bf16>();
}

TEST_CASE("add_layernorm is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("add_layernorm", {.power = 2}, [&]<class Element>(RandomCase& c) {
    auto const x = c.values<Element>(0), r = c.values<Element>(1);
    bool const constant = c.kind == ValueKind::equal || c.kind == ValueKind::zeros;  // whose bias would hide errors
    auto const w = random_values<Element>(c.columns, c.seed);
    auto const b = constant ? zeros(c.columns) : random_values<Element>(c.columns, c.seed + 1);
    auto const in = c.matrix<Element>(0, x), residual = c.matrix<Element>(1, r);
    auto const sum = c.matrix<Element>(2), y = c.matrix<Element>(3);
    auto const weight = view_of<Element>(w, c.columns), bias = view_of<Element>(b, c.columns);
    auto const options = draw_norm_options<kfuse::LayerNormOptions>(c);
    add_layernorm(space, in.const_view(), residual.const_view(), weight, bias, sum.view(), y.view(), options);
    auto const expected = reference(x, r, factors(w, options.weight), b, options.epsilon);
    c.compare("sum", sum, expected.sum);
    if (constant)
      c.compare("y", y, zeros(x.size()));
    else
      c.compare("y", y, expected.y, scales(expected.sum, c.columns, options.epsilon, largest_factor(options.weight)));
    c.unchanged("x", in, x);
    c.unchanged("residual", residual, r);
    c.same_bits("y", [&](int first, int count) {
      auto const part = view_of_nans<Element>(count, c.columns);
      add_layernorm(space, rows_of(in, first, count), rows_of(residual, first, count), weight, bias, part, options);
      return elements(part);
    });
  });
}

TEST_CASE("add_layernorm takes weights that are stored as what they exceed one by") {
  int const columns = 77;
  auto const x = random_values<bf16>(2 * columns, 1), r = random_values<bf16>(2 * columns, 4);
  auto const w = random_values<bf16>(columns, 2), b = random_values<bf16>(columns, 3);
  auto one_more = w;
  for (double& v : one_more) v += 1;
  auto const y = view_of_nans<float>(2, columns);
  add_layernorm(Space(), view_of<bf16>(x, 2, columns), view_of<bf16>(r, 2, columns), view_of<bf16>(w, columns),
                view_of<bf16>(b, columns), y, {.weight = kfuse::NormWeight::one_plus});
  CHECK(deviation(download(y), reference(x, r, one_more, b, 1e-5).y, 1) <= 1e-5);
}

// CASES P11
TEST_CASE("add_layernorm may overwrite x and the residual") {
  for (int const columns : {96, 4096, 40000}) {
    int const rows = 3;
    auto const x = random_values<bf16>(std::size_t(rows) * columns, 1);
    auto const r = random_values<bf16>(std::size_t(rows) * columns, 2);
    auto const w = view_of<bf16>(random_values<bf16>(columns, 3), columns);
    auto const a = view_of<bf16>(x, rows, columns), b = view_of<bf16>(r, rows, columns);
    auto const sum = view_of_nans<bf16>(rows, columns), y = view_of_nans<bf16>(rows, columns);
    kfuse::Workspace<Space> workspace(1 << 20);
    add_layernorm(Space(), a, b, w, w, sum, y);
    add_layernorm(Space(), a, b, w, w, b, a);
    CHECK(same_bits(b, sum));
    CHECK(same_bits(a, y));
    upload(a, x);
    upload(b, r);
    add_layernorm(Space(), a, b, w, w, a, b, {}, workspace);
    CHECK(same_bits(a, sum));
    CHECK(same_bits(b, y));
    upload(a, x);
    upload(b, r);
    add_layernorm(Space(), a, b, w, w, b, {}, workspace);
    CHECK(same_bits(b, y));
  }
}

TEST_CASE("add_layernorm of no rows writes nothing") {
  auto const none = view_of_nans<float>(0, 4);
  auto const w = view_of<float>({1, 1, 1, 1}, 4);
  add_layernorm(Space(), none, none, w, w, none, none);
  add_layernorm(Space(), none, none, w, w, none);
}

TEST_CASE("add_layernorm refuses what does not fit, and writes nothing") {
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4), y = view_of_nans<float>(3, 4);
  auto const w = view_of<float>({1, 1, 1, 1}, 4), few = view_of<float>({1, 1, 1}, 3);
  auto const small = view_of_nans<float>(3, 3);
  CHECK(contains(error_of([&] { add_layernorm(Space(), x, small, w, w, y); }),
                 "kfuse::add_layernorm: residual: shape [3, 3]"));
  CHECK(contains(error_of([&] { add_layernorm(Space(), x, x, w, few, y); }), "bias: has 3 entries"));
  CHECK(contains(error_of([&] { add_layernorm(Space(), x, x, w, w, y, y); }), "kfuse::add_layernorm: y: overlaps sum"));
  CHECK(contains(error_of([&] { add_layernorm(Space(), x, x, w, w, small, y); }),
                 "kfuse::add_layernorm: sum: shape [3, 3]"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("add_layernorm moves its arguments once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 64}, {64, 1}};
  kfuse::Tensor<float, 1> const w{nullptr, {64}, {1}};
  CHECK(kfuse::add_layernorm_traffic(Space(), x, x, w, w, x).bytes() == 3 * 10 * 64 * 2 + 2 * 64 * 4);
  CHECK(kfuse::add_layernorm_traffic(Space(), x, x, w, w, x, x).bytes() == 4 * 10 * 64 * 2 + 2 * 64 * 4);
}

}  // namespace
