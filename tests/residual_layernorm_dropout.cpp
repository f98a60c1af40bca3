// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/residual_layernorm_dropout.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "dropped.hpp"
#include "norm_options.hpp"
#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::fp16;
using kfuse::RandomState;
using kfuse::residual_layernorm_dropout;
using kfuse::Tensor;
using namespace kfuse::test;

struct Expected {
  std::vector<double> sum, y;                // y before dropout
  std::vector<double> sum_scales, y_scales;  // what cancels in each row
};

// The definition: sum = x + x_bias + residual, y = (sum - mean) / sqrt(variance + epsilon) * weight + bias
Expected reference(std::vector<double> const& x, std::vector<double> const& x_bias, std::vector<double> const& residual,
                   std::vector<double> const& weight, std::vector<double> const& bias, double epsilon = 1e-5,
                   double largest_weight = 2) {
  std::size_t const columns = weight.size();
  Expected e{x, x, {}, {}};
  for (std::size_t i = 0; i < x.size(); ++i) e.sum[i] = x[i] + (x_bias.empty() ? 0 : x_bias[i % columns]) + residual[i];
  for (std::size_t begin = 0; begin < x.size(); begin += columns) {
    long double mean = 0, variance = 0;  // for equal values, whose sum has more digits than a double
    double largest = 2;                  // the bias of x
    for (std::size_t c = begin; c < begin + columns; ++c) mean += e.sum[c] / columns;
    for (std::size_t c = begin; c < begin + columns; ++c) {
      variance += (e.sum[c] - mean) * (e.sum[c] - mean) / columns;
      // The parts of the sum, not the sum itself, are what is rounded.
      largest = std::max({largest, std::abs(x[c]), std::abs(residual[c])});
    }
    long double const root = std::sqrt(variance + epsilon);
    for (std::size_t c = begin; c < begin + columns; ++c)  // zeros stay zeros
      e.y[c] = (root == 0 ? 0 : double((e.sum[c] - mean) / root)) * weight[c - begin] + bias[c - begin];
    e.sum_scales.push_back(largest);
    e.y_scales.push_back(2 + (root == 0 ? 0 : largest_weight * largest / double(root)));
  }
  return e;
}

template <class Element>
Tensor<Element const, 1> as_bias(Kokkos::View<Element*, Kokkos::LayoutRight, Space> const& bias) {
  return kfuse::as_tensor(bias);
}

TEST_CASE("residual_layernorm_dropout is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("residual_layernorm_dropout", {.power = 2}, [&]<class Element>(RandomCase& c) {
    auto const x = c.values<Element>(0), r = c.values<Element>(1);
    bool const constant = c.kind == ValueKind::equal || c.kind == ValueKind::zeros;  // whose biases would hide errors
    auto const w = random_values<Element>(c.columns, c.seed);
    auto const b = constant ? std::vector<double>(c.columns, 0) : random_values<Element>(c.columns, c.seed + 1);
    auto const x_bias =
        constant || c.number % 3 == 0 ? std::vector<double>() : random_values<Element>(c.columns, c.seed + 2);
    bool const with_sum = c.number % 2 == 0;
    constexpr double probabilities[] = {0, 0.1, 0.5, 1};
    double const p = probabilities[c.seed % 4];
    RandomState const state{c.seed, c.seed >> 16};
    auto const in = c.matrix<Element>(0, x), residual = c.matrix<Element>(1, r);
    auto const sum = c.matrix<Element>(2), y = c.matrix<Element>(3);
    auto const weight = view_of<Element>(w, c.columns), bias = view_of<Element>(b, c.columns);
    auto const offset = view_of<Element>(x_bias, x_bias.size());
    auto options = draw_norm_options<kfuse::ResidualLayerNormDropoutOptions<Element>>(c);
    options.dropout = p;
    options.random = state;
    if (!x_bias.empty()) options.x_bias = as_bias(offset);
    auto with_its_sum = options;
    if (with_sum) with_its_sum.sum = kfuse::as_tensor(sum.view());
    residual_layernorm_dropout(space, in.const_view(), residual.const_view(), weight, bias, y.view(), with_its_sum);

    auto expected =
        reference(x, x_bias, r, factors(w, options.weight), b, options.epsilon, largest_factor(options.weight));
    for (double& s : expected.y_scales) s /= p < 1 ? 1 - p : 1;
    if (constant)
      c.compare("y", y, std::vector<double>(x.size(), 0));
    else
      c.compare("y", y, dropped(expected.y, c.columns, p, state), expected.y_scales);
    if (with_sum) c.compare("sum", sum, expected.sum, expected.sum_scales);
    c.expect(with_sum || std::isnan(download(sum.view())[0]), "a sum is stored that nobody asked for");
    c.unchanged("x", in, x);
    c.unchanged("residual", residual, r);
    if (p == 0 || p == 1)  // else a row's number decides what is dropped
      c.same_bits("y", [&](int first, int count) {
        auto const part = view_of_nans<Element>(count, c.columns);
        residual_layernorm_dropout(space, rows_of(in, first, count), rows_of(residual, first, count), weight, bias,
                                   part, options);
        return elements(part);
      });
    auto const once = y.values();
    auto const& in_place = c.number % 2 == 0 ? in : residual;
    residual_layernorm_dropout(space, in.const_view(), residual.const_view(), weight, bias, in_place.view(), options);
    c.unchanged("y in place", in_place, once);
  });
}

template <class Element>
auto run(std::vector<double> const& x, std::vector<double> const& r, int columns,
         kfuse::ResidualLayerNormDropoutOptions<Element> const& options) {
  int const rows = int(x.size() / columns);
  auto const w = view_of<Element>(random_values<Element>(columns, 3), columns);
  auto const y = view_of_nans<Element>(rows, columns);
  residual_layernorm_dropout(Space(), view_of<Element>(x, rows, columns), view_of<Element>(r, rows, columns), w, w, y,
                             options);
  return y;
}

TEST_CASE("residual_layernorm_dropout drops by seed, offset, row and column alone; p = 0 and p = 1 behave") {
  int const rows = 6, columns = 200;
  auto const x = random_values<float>(rows * columns, 1), r = random_values<float>(rows * columns, 2);
  auto const whole = run<float>(x, r, columns, {});
  auto const half = [&](RandomState const& state) {
    return run<float>(x, r, columns, {.dropout = 0.5, .random = state});
  };
  CHECK(same_bits(half({1, 0}), half({1, 0})));
  CHECK(!same_bits(half({1, 0}), half({1, 1})));
  CHECK(!same_bits(half({1, 0}), half({2, 0})));
  auto const kept = download(half({1, 0})), all = download(whole);
  CHECK(kept == dropped(all, columns, 0.5, {1, 0}));
  CHECK(download(run<float>(x, r, columns, {.dropout = 1})) == std::vector<double>(rows * columns, 0));
  // The same where the state is read by the kernels, and where the place of the matrix is another.
  Kokkos::View<RandomState, Space> const state("state");
  Kokkos::deep_copy(state, RandomState{1, 0});
  CHECK(same_bits(half({1, 0}), run<float>(x, r, columns, {.dropout = 0.5, .random = state})));
  GuardedMatrix<float> const y(rows, columns, Place2D{1, 3});
  auto const w = view_of<float>(random_values<float>(columns, 3), columns);
  residual_layernorm_dropout(Space(), view_of<float>(x, rows, columns), view_of<float>(r, rows, columns), w, w,
                             y.view(), {.dropout = 0.5, .random = {1, 0}});
  CHECK(y.values() == kept);
}

// CASES P11
TEST_CASE("residual_layernorm_dropout may overwrite x and the residual, also with a workspace") {
  for (int const columns : {96, 4096, 40000}) {
    int const rows = 3;
    auto const x = random_values<bf16>(std::size_t(rows) * columns, 1);
    auto const r = random_values<bf16>(std::size_t(rows) * columns, 2);
    auto const a = view_of<bf16>(x, rows, columns), b = view_of<bf16>(r, rows, columns);
    auto const w = view_of<bf16>(random_values<bf16>(columns, 3), columns);
    auto const sum = view_of_nans<bf16>(rows, columns), y = view_of_nans<bf16>(rows, columns);
    kfuse::Workspace<Space> workspace(1 << 20);
    auto const to = [&](auto const& s) {
      return kfuse::ResidualLayerNormDropoutOptions<bf16>{.sum = kfuse::as_tensor(s), .dropout = 0.1, .random = {7, 0}};
    };
    residual_layernorm_dropout(Space(), a, b, w, w, y, to(sum));
    residual_layernorm_dropout(Space(), a, b, w, w, a, to(b));
    CHECK(same_bits(a, y));
    CHECK(same_bits(b, sum));
    upload(a, x);
    upload(b, r);
    residual_layernorm_dropout(Space(), a, b, w, w, b, to(a), workspace);
    CHECK(same_bits(b, y));
    CHECK(same_bits(a, sum));
  }
}

// CASES P01
TEST_CASE("residual_layernorm_dropout of a constant sum is the bias, and weights may be one-plus") {
  int const columns = 300;
  std::vector<double> const x(columns, 1234.5), r(columns, -0.125);
  auto const w = random_values<float>(columns, 3);
  CHECK(download(run<float>(x, r, columns, {.weight = kfuse::NormWeight::one_plus})) == w);
  auto const y = random_values<float>(columns, 1), zeros = std::vector<double>(columns, 0);
  auto one_more = w;
  for (double& v : one_more) v += 1;
  CHECK(deviation(download(run<float>(y, zeros, columns, {.weight = kfuse::NormWeight::one_plus})),
                  reference(y, {}, zeros, one_more, w).y, 1) <= 1e-5);
}

TEST_CASE("residual_layernorm_dropout is as exact as its result where x has fewer bits") {
  for (int const columns : {300, 4096}) {
    std::vector<double> const zeros(columns, 0);
    auto const x = view_of<bf16>(zeros, 1, columns);
    auto const one = view_of<float>(std::vector<double>(columns, 1), columns), none = view_of<float>(zeros, columns);
    for (double const value : {40000.3, 1234.57, 1.1}) {
      auto const residual = view_of<float>(std::vector<double>(columns, value), 1, columns);
      auto const y = view_of_nans<float>(1, columns);
      residual_layernorm_dropout(Space(), x, residual, one, none, y);
      CHECK(download(y) == zeros);
    }
  }
}

// CASES P09
TEST_CASE("residual_layernorm_dropout of no rows writes nothing") {
  auto const none = view_of_nans<float>(0, 4);
  auto const w = view_of<float>({1, 1, 1, 1}, 4);
  residual_layernorm_dropout(Space(), none, none, w, w, none, {.sum = kfuse::as_tensor(none)});
}

TEST_CASE("residual_layernorm_dropout refuses what does not fit, and writes nothing") {
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4), y = view_of_nans<float>(3, 4);
  auto const w = view_of<float>({1, 1, 1, 1}, 4), few = view_of<float>({1, 1, 1}, 3);
  auto const small = view_of_nans<float>(3, 3);
  auto const error = [&](auto const& r, auto const& weight, kfuse::ResidualLayerNormDropoutOptions<float> const& o) {
    return error_of([&] { residual_layernorm_dropout(Space(), x, r, weight, w, y, o); });
  };
  CHECK(contains(error(small, w, {}), "kfuse::residual_layernorm_dropout: residual: shape [3, 3]"));
  CHECK(contains(error(x, few, {}), "weight: has 3 entries, but rows have 4 columns"));
  CHECK(contains(error(x, w, {.x_bias = as_bias(few)}), "x_bias: has 3 entries, but rows have 4 columns"));
  CHECK(contains(error(x, w, {.sum = kfuse::as_tensor(small)}), "dropout: sum: shape [3, 3]"));
  CHECK(contains(error(x, w, {.sum = kfuse::as_tensor(y)}), "dropout: y: overlaps sum"));
  CHECK(contains(error(x, w, {.dropout = 1.5}), "must lie in [0, 1]"));
  CHECK(contains(error(x, w, {.dropout = NAN}), "must lie in [0, 1]"));
  CHECK(contains(error(x, w, {.epsilon = -1}), "epsilon"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("residual_layernorm_dropout moves what it is given, once") {
  Tensor<bf16, 2> const x{nullptr, {10, 64}, {64, 1}};
  Tensor<float, 1> const w{nullptr, {64}, {1}};
  bf16 somewhere[640];
  auto const bytes = [&](kfuse::ResidualLayerNormDropoutOptions<bf16> const& options) {
    return kfuse::residual_layernorm_dropout_traffic(Space(), x, x, w, w, x, options).bytes();
  };
  CHECK(bytes({}) == 3 * 10 * 64 * 2 + 2 * 64 * 4);
  CHECK(bytes({.x_bias = {somewhere, {64}, {1}}}) == 3 * 10 * 64 * 2 + 2 * 64 * 4 + 64 * 2);
  CHECK(bytes({.sum = {somewhere, {10, 64}, {64, 1}}}) == 4 * 10 * 64 * 2 + 2 * 64 * 4);
}

}  // namespace
