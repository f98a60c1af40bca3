// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/fold_batchnorm.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::fold_batchnorm;
using kfuse::fp16;
using kfuse::Tensor;
using namespace kfuse::test;

// A batch normalisation of `out` channels, and where it is given.
template <class Element>
struct BatchNorm {
  std::vector<double> mean, variance, weight, bias;
  Kokkos::View<Element*, Kokkos::LayoutRight, Space> given[4];

  BatchNorm(int out, std::uint64_t seed)
      : mean(random_values<Element>(out, seed)),
        variance(random_values<Element>(out, seed + 1, 0.25, 4)),
        weight(random_values<Element>(out, seed + 2)),
        bias(random_values<Element>(out, seed + 3)),
        given{view_of<Element>(mean, out), view_of<Element>(variance, out), view_of<Element>(weight, out),
              view_of<Element>(bias, out)} {}
  template <class W, class B, class W2, class B2>
  void fold(Space const& space, W const& w, B const& b, W2 const& out_w, B2 const& out_b) const {
    fold_batchnorm(space, w, b, given[0], given[1], given[2], given[3], out_w, out_b);
  }
  double factor(std::size_t o) const { return weight[o] / std::sqrt(variance[o] + 1e-5); }
};

TEST_CASE("fold_batchnorm is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("fold_batchnorm", {}, [&]<class Element>(RandomCase& c) {
    BatchNorm<kfuse::Real<Element>> const norm(c.rows, c.seed);
    auto const w = c.values<Element>(0), b = random_values<Element>(c.rows, c.seed + 4);
    auto const weight = c.matrix<Element>(0, w), folded = c.matrix<Element>(1);
    auto const bias = view_of<Element>(b, c.rows);
    GuardedMatrix<Element> const out_bias(1, c.rows);
    auto const out_b = Kokkos::subview(out_bias.view(), 0, Kokkos::ALL);
    bool const has_bias = c.number % 2 == 0;
    if (has_bias)
      norm.fold(space, weight.const_view(), bias, folded.view(), out_b);
    else
      norm.fold(space, weight.const_view(), Tensor<Element const, 1>(), folded.view(), out_b);
    std::vector<double> expected(w.size()), expected_bias(b.size());
    for (std::size_t i = 0; i < w.size(); ++i) expected[i] = w[i] * norm.factor(i / c.columns);
    for (std::size_t o = 0; o < b.size(); ++o)
      expected_bias[o] = ((has_bias ? b[o] : 0) - norm.mean[o]) * norm.factor(o) + norm.bias[o];
    c.compare("weight", folded, expected);
    c.compare("bias", out_bias, expected_bias, {16});
    c.unchanged("weight", weight, w);
  });
}

TEST_CASE("fold_batchnorm of a bias in double is as exact as one") {
  int const out = 40, in = 7;
  BatchNorm<float> const norm(out, 1);
  auto const w = random_values<bf16>(std::size_t(out) * in, 5), b = random_values<double>(out, 6);
  auto const weight = view_of<bf16>(w, out, in), folded = view_of_nans<bf16>(out, in);
  auto const out_b = view_of_nans<double>(out);
  norm.fold(Space(), weight, view_of<double>(b, out), folded, out_b);
  std::vector<double> expected(out);
  for (std::size_t o = 0; o < expected.size(); ++o) expected[o] = (b[o] - norm.mean[o]) * norm.factor(o) + norm.bias[o];
  CHECK(disagreement<double>(download(out_b), expected, out, {16}) == "");
}

// What it is for: the folded layer gives what the layer and its batch normalisation gave.
TEST_CASE("fold_batchnorm gives a layer that does both") {
  int const rows = 4, in = 9, out = 6;
  BatchNorm<double> const norm(out, 1);
  auto const x = random_values<double>(rows * in, 2), w = random_values<double>(out * in, 3),
             b = random_values<double>(out, 4);
  auto const weight = view_of<double>(w, out, in);
  auto const bias = view_of<double>(b, out);
  norm.fold(Space(), weight, bias, weight, bias);  // in place
  auto const w2 = download(weight), b2 = download(bias);
  auto const linear = [&](int r, int o, std::vector<double> const& weights, std::vector<double> const& offsets) {
    double sum = offsets[o];
    for (int i = 0; i < in; ++i) sum += x[r * in + i] * weights[o * in + i];
    return sum;
  };
  for (int r = 0; r < rows; ++r)
    for (int o = 0; o < out; ++o) {
      double const both = (linear(r, o, w, b) - norm.mean[o]) * norm.factor(o) + norm.bias[o];
      CHECK(linear(r, o, w2, b2) == doctest::Approx(both).epsilon(1e-12));
    }
}

TEST_CASE("fold_batchnorm in place gives the bits it gives elsewhere") {
  for (int const in : {1, 16, 333}) {
    int const out = 20;
    BatchNorm<float> const norm(out, 1);
    auto const w = view_of<bf16>(random_values<bf16>(out * in, 3), out, in), w2 = view_of_nans<bf16>(out, in);
    auto const b = view_of<bf16>(random_values<bf16>(out, 4), out), b2 = view_of_nans<bf16>(out);
    norm.fold(Space(), w, b, w2, b2);
    norm.fold(Space(), w, b, w, b);
    CHECK(same_bits(w, w2));
    CHECK(same_bits(b, b2));
  }
}

TEST_CASE("fold_batchnorm of nothing writes nothing") {
  BatchNorm<float> const norm(0, 1);
  norm.fold(Space(), view_of_nans<float>(0, 4), view_of_nans<float>(0), view_of_nans<float>(0, 4),
            view_of_nans<float>(0));
}

TEST_CASE("fold_batchnorm refuses what does not fit, and writes nothing") {
  BatchNorm<float> const norm(3, 1), other(4, 1);
  auto const w = view_of<float>(random_values<float>(12, 1), 3, 4), out_w = view_of_nans<float>(3, 4);
  auto const b = view_of<float>({1, 2, 3}, 3), out_b = view_of_nans<float>(3), longer = view_of_nans<float>(4);
  auto const error = [&](auto const& n, auto const& bias, auto const& w2, auto const& b2) {
    return error_of([&] { n.fold(Space(), w, bias, w2, b2); });
  };
  CHECK(contains(error(other, b, out_w, out_b), "kfuse::fold_batchnorm: running_mean: has 4 entries for 3 channels"));
  CHECK(contains(error(norm, longer, out_w, out_b), "kfuse::fold_batchnorm: bias: needs one entry for each row"));
  CHECK(contains(error(norm, b, out_w, longer), "kfuse::fold_batchnorm: out_bias: needs one entry for each row"));
  CHECK(contains(error(norm, b, view_of_nans<float>(4, 3), out_b), "kfuse::fold_batchnorm: out_weight: shape [4, 3]"));
  for (int const read_by_all : {1, 2})  // other values of the row need the variance and the weight, too
    CHECK(contains(error(norm, b, out_w, norm.given[read_by_all]),
                   read_by_all == 1 ? "out_bias: overlaps running_var" : "out_bias: overlaps bn_weight"));
  auto const no_columns = view_of_nans<float>(3, 0);
  CHECK(contains(error_of([&] { norm.fold(Space(), no_columns, b, no_columns, out_b); }), "has no columns"));
  for (double const v : download(out_w)) CHECK(std::isnan(v));
  for (double const v : download(out_b)) CHECK(std::isnan(v));
  CHECK(download(norm.given[1]) == norm.variance);
}

TEST_CASE("fold_batchnorm moves its arguments once") {
  Tensor<bf16, 2> const w{nullptr, {10, 64}, {64, 1}};
  Tensor<bf16, 1> const b{nullptr, {10}, {1}};
  Tensor<float, 1> const p{nullptr, {10}, {1}};
  CHECK(kfuse::fold_batchnorm_traffic(Space(), w, b, p, p, p, p, w, b).bytes() == 2 * (640 + 10) * 2 + 4 * 10 * 4);
}

}  // namespace
