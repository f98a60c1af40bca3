// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/add_layernorm.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

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
    double mean = 0, variance = 0;
    for (std::size_t c = 0; c < columns; ++c) mean += row[c] / double(columns);
    for (std::size_t c = 0; c < columns; ++c) variance += (row[c] - mean) * (row[c] - mean) / double(columns);
    for (std::size_t c = 0; c < columns; ++c)
      e.y[r * columns + c] = (row[c] - mean) / std::sqrt(variance + epsilon) * weight[c] + bias[c];
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
                 "kfuse::add_layernorm: add: shape [3, 3]"));
  CHECK(contains(error_of([&] { add_layernorm(Space(), x, x, w, few, y); }), "bias: has 3 entries"));
  CHECK(contains(error_of([&] { add_layernorm(Space(), x, x, w, w, y, y); }), "two outputs overlap"));
  CHECK(contains(error_of([&] { add_layernorm(Space(), x, x, w, w, small, y); }), "store: shape [3, 3]"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("add_layernorm moves its arguments once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 64}, {64, 1}};
  kfuse::Tensor<float, 1> const w{nullptr, {64}, {1}};
  CHECK(kfuse::add_layernorm_traffic(Space(), x, x, w, w, x).bytes() == 3 * 10 * 64 * 2 + 2 * 64 * 4);
  CHECK(kfuse::add_layernorm_traffic(Space(), x, x, w, w, x, x).bytes() == 4 * 10 * 64 * 2 + 2 * 64 * 4);
}

}  // namespace
