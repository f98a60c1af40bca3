// SPDX-License-Identifier: Apache-2.0
#include <kfuse/core/replay.hpp>
#include <kfuse/fused/bias_activation_dropout_residual.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "activations.hpp"
#include "dropped.hpp"
#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::Activation;
using kfuse::bf16;
using kfuse::bias_activation_dropout_residual;
using kfuse::fp16;
using kfuse::RandomState;
using Options = kfuse::BiasActivationDropoutResidualOptions;
using namespace kfuse::test;

constexpr double infinity = std::numeric_limits<double>::infinity();

// x + bias, its activation and what is left of that are numbers of Real<Element>: those beyond its end are infinite.
template <class Element>
std::vector<double> held(std::vector<double> x) {
  for (double& v : x) v = rounded_or_infinite<kfuse::Real<Element>>(v);
  return x;
}

// The definition.
template <class Element>
std::vector<double> reference(std::vector<double> const& x, std::vector<double> const& bias,
                              std::vector<double> const& residual, Options const& options) {
  int const columns = int(bias.size());
  std::vector<double> const nothing(columns, 0);
  auto const v = activated(options.activation, held<Element>(activated(Activation::none, x, bias)), nothing);
  auto y = held<Element>(dropped(v, columns, options.dropout, options.random()));
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += residual[i];
  return y;
}

TEST_CASE("bias_activation_dropout_residual is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("bias_activation_dropout_residual", {}, [&]<class Element>(RandomCase& c) {
    constexpr double probabilities[] = {0, 0.1, 0.5, 1};
    Options const options{.activation = all_activations[c.seed % std::size(all_activations)],
                          .dropout = probabilities[c.seed / 8 % 4],
                          .random = {c.seed, c.seed >> 16}};
    auto const x = c.values<Element>(0), b = c.values<Element>(1, c.columns), r = c.values<Element>(2);
    auto const in = c.matrix<Element>(0, x), out = c.matrix<Element>(1), residual = c.matrix<Element>(2, r);
    auto const bias = view_of<Element>(b, c.columns);
    auto const scales = RowScales(c.columns)
                            .with(activated(Activation::none, x, b))
                            .with(reference<Element>(x, b, std::vector<double>(x.size(), 0), options))
                            .with(r)
                            .get();
    bias_activation_dropout_residual(space, in.const_view(), bias, residual.const_view(), out.view(), options);
    c.compare("y of activation " + std::to_string(int(options.activation)), out, reference<Element>(x, b, r, options),
              scales);
    c.unchanged("x", in, x);
    c.unchanged("residual", residual, r);
    auto const y = out.values();
    auto const& in_place = c.number % 2 == 0 ? in : residual;
    bias_activation_dropout_residual(space, in.const_view(), bias, residual.const_view(), in_place.view(), options);
    c.unchanged("y in place", in_place, y);
    if (options.dropout > 0 && options.dropout < 1) return;  // a row's number decides what is dropped
    c.same_bits("y", [&](int first, int count) {
      auto const part = view_of_nans<Element>(count, c.columns);
      bias_activation_dropout_residual(space, rows_of(in, first, count), bias, rows_of(residual, first, count), part,
                                       options);
      return elements(part);
    });
  });
}

TEST_CASE("elements may differ in type, and the sum is rounded once") {
  int const rows = 3, columns = 129;
  auto const x = random_values<fp16>(rows * columns, 1), r = random_values<float>(rows * columns, 2);
  auto const b = random_values<float>(columns, 3);
  Options const options{.activation = Activation::silu, .dropout = 0.25, .random = {8, 1}};
  auto const y = view_of_nans<bf16>(rows, columns);
  bias_activation_dropout_residual(Space(), view_of<fp16>(x, rows, columns), view_of<float>(b, columns),
                                   view_of<float>(r, rows, columns), y, options);
  CHECK(disagreement<bf16>(download(y), reference<float>(x, b, r, options), columns).empty());
}

// CASES P31
TEST_CASE_TEMPLATE("where everything is dropped, exactly the residual is left", Element, double, float, bf16, fp16) {
  auto const r = random_values<Element>(2 * 70, 1);
  auto x = random_values<Element>(2 * 70, 2);
  x[0] = infinity, x[1] = -infinity, x[2] = NAN, x[3] = largest<Element>();
  auto const residual = view_of<Element>(r, 2, 70), y = view_of_nans<Element>(2, 70);
  auto const bias = view_of<Element>(random_values<Element>(70, 3), 70);
  bias_activation_dropout_residual(Space(), view_of<Element>(x, 2, 70), bias, residual, y,
                                   {.activation = Activation::gelu, .dropout = 1});
  CHECK(same_bits(y, residual));
}

// CASES P42
TEST_CASE("a replay reads its random state from memory") {
  Space const space = another_instance();
  int const rows = 64, columns = 256;
  auto const x = view_of<float>(random_values<float>(rows * columns, 1), rows, columns);
  auto const bias = view_of<float>(random_values<float>(columns, 2), columns);
  auto const residual = view_of<float>(random_values<float>(rows * columns, 3), rows, columns);
  auto const y = view_of_nans<float>(rows, columns);
  Kokkos::View<RandomState, Space> const state("kfuse::test::state");
  kfuse::Replay<Space> replay;
  replay.record([=](Space const& s) {
    bias_activation_dropout_residual(s, x, bias, residual, y,
                                     {.activation = Activation::relu, .dropout = 0.5, .random = state});
  });
  for (RandomState const now : {RandomState{7, 0}, RandomState{7, 1}, RandomState{7, 0}}) {
    Kokkos::deep_copy(state, now);
    replay.run(space);
    auto const replayed = download(y);
    bias_activation_dropout_residual(space, x, bias, residual, y,
                                     {.activation = Activation::relu, .dropout = 0.5, .random = now});
    CHECK(download(y) == replayed);
  }
}

TEST_CASE("bias_activation_dropout_residual of nothing writes nothing") {
  auto const none = view_of_nans<float>(0, 4);
  bias_activation_dropout_residual(Space(), none, view_of_nans<float>(4), none, view_of_nans<float>(0, 4));
}

TEST_CASE("bias_activation_dropout_residual refuses what does not fit, and writes nothing") {
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4), y = view_of_nans<float>(3, 4);
  auto const b = view_of<float>({1, 2, 3, 4}, 4), three = view_of<float>({1, 2, 3}, 3);
  auto const turned = view_of<float>(random_values<float>(12, 1), 4, 3);
  auto const error = [&](auto const& bias, auto const& residual, Options const& options) {
    return error_of([&] { bias_activation_dropout_residual(Space(), x, bias, residual, y, options); });
  };
  CHECK(contains(error(three, x, {}), "kfuse::bias_activation_dropout_residual: bias: has 3 entries"));
  CHECK(
      contains(error(b, turned, {}), "kfuse::bias_activation_dropout_residual: residual: shape [4, 3] does not match"));
  CHECK(contains(error(b, x, {.dropout = 1.5}), "dropout: the probability to drop a value must lie in [0, 1]"));
  CHECK(contains(error(b, x, {.dropout = NAN}), "dropout: the probability to drop a value must lie in [0, 1]"));
  // What dropout would refuse is refused without it, too: it would fail on the day it is switched on.
  Kokkos::View<RandomState, Space, Kokkos::MemoryUnmanaged> const in_y(reinterpret_cast<RandomState*>(y.data()));
  for (double const p : {0.0, 0.5}) {
    CAPTURE(p);
    CHECK(contains(error(b, x, {.dropout = p, .random = in_y}), "kfuse::bias_activation_dropout_residual: "));
  }
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("bias_activation_dropout_residual moves its arguments once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 64}, {64, 1}};
  kfuse::Tensor<bf16, 1> const b{nullptr, {64}, {1}};
  CHECK(kfuse::bias_activation_dropout_residual_traffic(Space(), x, b, x, x).bytes() == 3 * 10 * 64 * 2 + 64 * 2);
}

}  // namespace
