// SPDX-License-Identifier: Apache-2.0
// The activation stages, on all values of the 16-bit types and on many of the others.
#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/activation.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "activations.hpp"
#include "support.hpp"

namespace {

using kfuse::Activation;
using kfuse::bf16;
using kfuse::fp16;
using namespace kfuse::test;

constexpr double infinity = std::numeric_limits<double>::infinity();

// Calls f(name, stage, definition) for each activation.
template <class F>
void for_each_activation(F const& f) {
  auto const with = [&](char const* name, auto const& stage, Activation activation) {
    f(name, stage, [=](double x) { return activated(activation, x); });
  };
  with("relu", kfuse::relu(), Activation::relu);
  with("gelu", kfuse::gelu(), Activation::gelu);
  with("gelu_tanh", kfuse::gelu_tanh(), Activation::gelu_tanh);
  with("gelu_quick", kfuse::gelu_quick(), Activation::gelu_quick);
  with("silu", kfuse::silu(), Activation::silu);
  with("sigmoid", kfuse::sigmoid(), Activation::sigmoid);
  with("tanh", kfuse::tanh(), Activation::tanh);
  f("softcap", kfuse::softcap(30), [](double x) { return 30 * std::tanh(x / 30); });
  f("clamp", kfuse::clamp(-1.5, 0.75), [](double x) { return std::isnan(x) ? x : std::min(std::max(x, -1.5), 0.75); });
}

template <class Element, class Stage>
std::vector<double> results(Stage const& stage, std::vector<double> const& x) {
  int const n = int(x.size());
  auto const y = view_of_nans<Element>(1, n);
  kfuse::fuse(Space(), "kfuse::test::activation", kfuse::load(view_of<Element>(x, 1, n)) | stage | kfuse::store(y));
  return download(y);
}

// Every value of a 16-bit type but NaN.
template <class Element>
std::vector<double> all_values() {
  std::vector<double> values;
  for (int bits = 0; bits < 65536; ++bits) {
    double const x = kfuse::to_real(Element{std::uint16_t(bits)});
    if (!std::isnan(x)) values.push_back(x);
  }
  return values;
}

TEST_CASE_TEMPLATE("activations of every 16-bit value are within one unit in the last place", Element, bf16, fp16) {
  auto const x = all_values<Element>();
  for_each_activation([&](char const* name, auto const& stage, auto const& definition) {
    auto const y = results<Element>(stage, x);
    double worst = 0, at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double const expected = rounded<Element>(definition(x[i]));
      double const units = y[i] == expected ? 0 : std::abs(y[i] - expected) / ulp<Element>(expected);
      if (!(units <= worst)) worst = units, at = x[i];
    }
    CAPTURE(std::string(name));
    CAPTURE(at);
    CHECK(worst <= 1);
  });
}

TEST_CASE_TEMPLATE("activations in fp32 and fp64 agree with their definitions", Element, float, double) {
  double const bound = std::same_as<Element, float> ? 1e-6 : 1e-13;
  for (double const range : {1e-3, 1.0, 12.0, 200.0}) {
    auto const x = random_values<Element>(20000, 7, -range, range);
    for_each_activation([&](char const* name, auto const& stage, auto const& definition) {
      std::vector<double> expected(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) expected[i] = definition(x[i]);
      CAPTURE(std::string(name));
      CAPTURE(range);
      CHECK(deviation(results<Element>(stage, x), expected, std::min(range, 1.0)) <= bound);
    });
  }
}

TEST_CASE_TEMPLATE("activations are finite for all that is finite, limits for infinities, and NaN for NaN", Element,
                   double, float, bf16, fp16) {
  double const largest = std::same_as<Element, double> ? 1.7e308
                         : std::same_as<Element, fp16> ? 65504
                                                       : rounded<Element>(3.3e38);
  double const smallest = ulp<Element>(0);
  std::vector<double> const x{-infinity, -largest, -1e4, -smallest, 0, smallest, 1e4, largest, infinity, NAN};
  for_each_activation([&](char const* name, auto const& stage, auto const& definition) {
    auto const y = results<Element>(stage, x);
    CAPTURE(std::string(name));
    for (std::size_t i = 0; i + 1 < x.size(); ++i) {
      double const expected = rounded<Element>(definition(x[i]));
      CAPTURE(x[i]);
      CHECK((y[i] == expected || std::abs(y[i] - expected) <= 4 * ulp<Element>(expected)));
    }
    CHECK(std::isnan(y.back()));
  });
}

TEST_CASE("softcap and clamp refuse bounds that make no sense, and write nothing") {
  auto const x = view_of<float>({1, 2}, 1, 2), y = view_of_nans<float>(1, 2);
  auto const error = [&](auto const& stage) {
    return error_of([&] { kfuse::fuse(Space(), "cap", kfuse::load(x) | stage | kfuse::store(y)); });
  };
  for (double const cap : {0.0, -1.0, infinity, double(NAN)})
    CHECK(contains(error(kfuse::softcap(cap)), "cap: softcap: cap must be positive and finite"));
  CHECK(contains(error(kfuse::clamp(1, 0)), "cap: clamp: low must not be above high"));
  CHECK(contains(error(kfuse::clamp(NAN, 0)), "cap: clamp: low must not be above high"));
  CHECK(contains(error(kfuse::clamp(0, NAN)), "cap: clamp: low must not be above high"));
  for (double const v : download(y)) CHECK(std::isnan(v));
  CHECK(error(kfuse::clamp(0, infinity)).empty());
  CHECK(download(y) == std::vector<double>{1, 2});
}

}  // namespace
