// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/layernorm.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "norm_options.hpp"
#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::fp16;
using kfuse::layernorm;
using namespace kfuse::test;

// The definition: y = (x - mean) / sqrt(mean((x - mean)^2) + epsilon) * weight + bias
std::vector<double> reference(std::vector<double> const& x, std::vector<double> const& weight,
                              std::vector<double> const& bias, double epsilon) {
  std::size_t const columns = weight.size(), rows = x.size() / columns;
  std::vector<double> y(x.size());
  for (std::size_t r = 0; r < rows; ++r) {
    double const* const row = &x[r * columns];
    long double mean = 0, variance = 0;  // for equal values, whose sum has more digits than a double
    for (std::size_t c = 0; c < columns; ++c) mean += row[c] / columns;
    for (std::size_t c = 0; c < columns; ++c) variance += (row[c] - mean) * (row[c] - mean) / columns;
    long double const root = std::sqrt(variance + epsilon);
    for (std::size_t c = 0; c < columns; ++c)  // zeros stay zeros
      y[r * columns + c] = (root == 0 ? 0 : double((row[c] - mean) / root)) * weight[c] + bias[c];
  }
  return y;
}

std::vector<double> filled(std::size_t n, double value) {
  return std::vector<double>(n, value);
}

// layernorm of rows by weights of one and a constant bias, in float.
std::vector<double> normed(std::vector<double> const& x, int columns, double epsilon = 1e-5, double bias = 0) {
  int const rows = int(x.size() / columns);
  auto const y = view_of_nans<float>(rows, columns);
  layernorm(Space(), view_of<float>(x, rows, columns), view_of<float>(filled(columns, 1), columns),
            view_of<float>(filled(columns, bias), columns), y, {.epsilon = epsilon});
  return download(y);
}

TEST_CASE_TEMPLATE("layernorm agrees with its definition in double", Element, double, float, bf16, fp16) {
  Space const space = another_instance();
  int const rows = 3;
  for (int const columns : {2, 3, 16, 31, 33, 255, 768, 1025, 4096, 10001})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 0}, Place2D{2, 7}}) {
      CAPTURE(columns);
      CAPTURE(place.shift);
      auto const x = random_values<Element>(std::size_t(rows) * columns, columns, -1, 3);
      auto const w = random_values<Element>(columns, 1), b = random_values<Element>(columns, 2);
      GuardedMatrix<Element> const in(rows, columns, x, place), out(rows, columns, place);
      layernorm(space, in.const_view(), view_of<Element>(w, columns), view_of<Element>(b, columns), out.view());
      CHECK(deviation(out.values(), reference(x, w, b, 1e-5), 1) <= tolerance<Element>());
      CHECK(out.guards_intact());
      CHECK(in.values() == x);
    }
}

// What the numbers are that cancel in a row: x and its mean, and the bias, in units of the result. Weights are up
// to `weight`.
std::vector<double> scales(std::vector<double> const& x, std::size_t columns, double epsilon, double weight = 2) {
  std::vector<double> result;
  for (std::size_t begin = 0; begin < x.size(); begin += columns) {
    long double mean = 0, variance = 0;
    double largest = 0;
    for (std::size_t c = begin; c < begin + columns; ++c) mean += x[c] / columns;
    for (std::size_t c = begin; c < begin + columns; ++c) {
      variance += (x[c] - mean) * (x[c] - mean) / columns;
      largest = std::max(largest, std::abs(x[c]));
    }
    double const root = std::sqrt(double(variance) + epsilon);
    result.push_back(2 + (root == 0 ? 0 : weight * largest / root));
  }
  return result;
}

TEST_CASE("layernorm is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("layernorm", {.power = 2}, [&]<class Element>(RandomCase& c) {
    auto const x = c.values<Element>(0);
    bool const constant = c.kind == ValueKind::equal || c.kind == ValueKind::zeros;  // whose bias would hide errors
    auto const w = random_values<Element>(c.columns, c.seed);
    auto const b = constant ? filled(c.columns, 0) : random_values<Element>(c.columns, c.seed + 1);
    auto const in = c.matrix<Element>(0, x), y = c.matrix<Element>(1);
    auto const weight = view_of<Element>(w, c.columns), bias = view_of<Element>(b, c.columns);
    auto const options = draw_norm_options<kfuse::LayerNormOptions>(c);
    layernorm(space, in.const_view(), weight, bias, y.view(), options);
    if (constant)
      c.compare("y", y, filled(x.size(), 0));
    else
      c.compare("y", y, reference(x, factors(w, options.weight), b, options.epsilon),
                scales(x, c.columns, options.epsilon, largest_factor(options.weight)));
    c.unchanged("x", in, x);
    c.same_bits("y", [&](int first, int count) {
      auto const part = view_of_nans<Element>(count, c.columns);
      layernorm(space, rows_of(in, first, count), weight, bias, part, options);
      return elements(part);
    });
  });
}

// CASES P04
TEST_CASE("layernorm counts no lanes beyond the row") {
  CHECK(deviation(normed({1, 2, 6}, 3), {-0.925819108, -0.462909554, 1.388728662}) <= 1e-5);
  for (int columns = 2; columns <= 130; ++columns) {
    CAPTURE(columns);
    auto const x = random_values<float>(2 * columns, columns, 5, 9);
    CHECK(deviation(normed(x, columns), reference(x, filled(columns, 1), filled(columns, 0), 1e-5), 1) <= 1e-5);
  }
}

// CASES P01
TEST_CASE("layernorm keeps a small spread about a large mean") {
  std::vector<double> const expected{-1.341635420, -0.447211807, 0.447211807, 1.341635420};
  CHECK(deviation(normed({40000, 40001, 40002, 40003}, 4), expected) <= 1e-5);
  CHECK(deviation(normed({80000, 80001, 80002, 80003}, 4), expected) <= 1e-5);
  std::vector<double> many;
  for (int r = 0; r < 1000; ++r) many.insert(many.end(), {40000, 40001, 40002, 40003});
  auto const y = normed(many, 4);
  for (int const r : {0, 1, 500, 999})
    CHECK(std::vector(y.begin() + 4 * r, y.begin() + 4 * r + 4) == normed({40000, 40001, 40002, 40003}, 4));
}
TEST_CASE("layernorm of a constant row is the bias") {
  CHECK(normed(filled(256, 1234), 256) == filled(256, 0));
  CHECK(normed(filled(256, 1234), 256, 1e-5, 0.5) == filled(256, 0.5));
  CHECK(normed(filled(2 * 131072, 1), 131072) == filled(2 * 131072, 0));
  for (int const columns : {3, 100, 4095, 70000})  // sums of such a number need more digits than float has
    for (float const value : {1234.567f, 0.1f, -3e-7f, 7e30f})
      CHECK(normed(filled(columns, value), columns, 1e-5, 0.5) == filled(columns, 0.5));
}

TEST_CASE_TEMPLATE("layernorm of a constant row is the bias in all types and widths", Element, double, float, bf16,
                   fp16) {
  double const all_digits = 2 - std::ldexp(1, -Format<Element>::mantissa);
  for (int const columns : {9163, 12345, 16383, 65537, 69999})  // sums of 16-bit values exceed the digits of float
    for (double const value : {all_digits, -1024 * all_digits, rounded<Element>(0.1)})
      for (double const epsilon : {0.0, 1e-5}) {
        CAPTURE(columns);
        CAPTURE(value);
        auto const y = view_of_nans<Element>(1, columns);
        auto const weight = view_of<Element>(filled(columns, 1), columns);
        auto const bias = view_of<Element>(filled(columns, 0), columns);
        layernorm(Space(), view_of<Element>(filled(columns, value), 1, columns), weight, bias, y, {.epsilon = epsilon});
        CHECK(download(y) == filled(columns, 0));
      }
}

// What the header says of values whose sums, or whose squares, float cannot hold.
TEST_CASE("layernorm of huge values is what its header says") {
  CHECK(normed(filled(64, 4e37), 64, 1e-5, 0.5) == filled(64, 0.5));
  for (double const v : normed(filled(64, 3e38), 64)) CHECK(std::isnan(v));
  CHECK(normed({-1e20, 1e20}, 2, 1e-5, 0.5) == filled(2, 0.5));
}

// CASES P03
TEST_CASE("layernorm of one column is the bias, and epsilon is under the root") {
  CHECK(normed({2, -1e30, 0}, 1, 1e-5, 0.25) == filled(3, 0.25));
  CHECK(deviation(normed({0, 2e-3}, 2), {-0.301511345, 0.301511345}) <= 1e-5);
}
TEST_CASE_TEMPLATE("layernorm of one column is the bias in all types", Element, double, bf16, fp16) {
  auto const y = view_of_nans<Element>(4, 1);
  layernorm(Space(), view_of<Element>({2, -largest<Element>(), 0, rounded<Element>(0.1)}, 4, 1),
            view_of<Element>({3}, 1), view_of<Element>({0.25}, 1), y);
  CHECK(download(y) == filled(4, 0.25));
}

// CASES P08
TEST_CASE("layernorm takes very many rows") {
  int const rows = 70000;
  std::vector<double> x(4 * std::size_t(rows));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = double(i / 4 % 7) + double(i % 4);
  auto const y = normed(x, 4);
  CHECK(deviation(y, reference(x, filled(4, 1), filled(4, 0), 1e-5)) <= 1e-5);
  CHECK(y.back() == doctest::Approx(1.34163542));
}

TEST_CASE("layernorm in place, or with a workspace, has the same bits") {
  for (int const columns : {768, 131072 + 3}) {
    auto const x = view_of<float>(random_values<float>(2 * columns, 1), 2, columns);
    auto const w = view_of<float>(random_values<float>(columns, 2), columns);
    auto const y = view_of_nans<float>(2, columns), z = view_of_nans<float>(2, columns);
    kfuse::Workspace<Space> workspace(1 << 20);
    workspace.poison(Space());
    layernorm(Space(), x, w, w, y);
    layernorm(Space(), x, w, w, z, {}, workspace);
    layernorm(Space(), x, w, w, x);
    CHECK(same_bits(y, z));
    CHECK(same_bits(y, x));
  }
}

// CASES P09
TEST_CASE("layernorm of nothing writes nothing") {
  auto const none = view_of_nans<float>(0, 4), no_columns = view_of_nans<float>(4, 0);
  auto const w = view_of<float>({1, 1, 1, 1}, 4), no_w = view_of_nans<float>(0);
  layernorm(Space(), none, w, w, none);
  layernorm(Space(), no_columns, no_w, no_w, no_columns);
}

// CASES P12
TEST_CASE("layernorm of 16-bit values takes a weight and a bias of 32 bits") {
  auto const x = random_values<bf16>(2 * 96, 1);
  auto const w = random_values<float>(96, 2), b = random_values<float>(96, 3);
  auto const y = view_of_nans<bf16>(2, 96);
  layernorm(Space(), view_of<bf16>(x, 2, 96), view_of<float>(w, 96), view_of<float>(b, 96), y);
  CHECK(deviation(download(y), reference(x, w, b, 1e-5), 1) <= tolerance<bf16>());
}

TEST_CASE("layernorm takes weights that are stored as what they exceed one by") {
  int const columns = 77;
  auto const x = random_values<bf16>(2 * columns, 1), w = random_values<bf16>(columns, 2);
  auto const b = random_values<bf16>(columns, 3);
  auto one_more = w;
  for (double& v : one_more) v += 1;
  auto const y = view_of_nans<float>(2, columns);
  layernorm(Space(), view_of<bf16>(x, 2, columns), view_of<bf16>(w, columns), view_of<bf16>(b, columns), y,
            {.weight = kfuse::NormWeight::one_plus});
  CHECK(deviation(download(y), reference(x, one_more, b, 1e-5), 1) <= 1e-5);  // rounded to bf16, 1 + w is off by 4e-3
}

TEST_CASE("layernorm refuses what does not fit, and writes nothing") {
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4), y = view_of_nans<float>(3, 4);
  auto const w = view_of<float>({1, 1, 1, 1}, 4), longer = view_of<float>({1, 1, 1, 1, 1}, 5);
  CHECK(contains(error_of([&] { layernorm(Space(), x, longer, w, y); }), "kfuse::layernorm: weight: has 5 entries"));
  CHECK(contains(error_of([&] { layernorm(Space(), x, w, longer, y); }), "kfuse::layernorm: bias: has 5 entries"));
  CHECK(contains(error_of([&] { layernorm(Space(), x, w, w, y, {.epsilon = -1}); }), "epsilon"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("layernorm moves its arguments once") {
  kfuse::Tensor<float, 2> const x{nullptr, {10, 64}, {64, 1}};
  kfuse::Tensor<float, 1> const w{nullptr, {64}, {1}};
  auto const traffic = kfuse::layernorm_traffic(Space(), x, w, w, x);
  CHECK(traffic.bytes_read == 10 * 64 * 4 + 2 * 64 * 4);
  CHECK(traffic.bytes_written == 10 * 64 * 4);
}

}  // namespace
