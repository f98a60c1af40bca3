// SPDX-License-Identifier: Apache-2.0
// The options of norms in random cases, and what they make of the weight.
#ifndef KFUSE_TESTS_NORM_OPTIONS_HPP
#define KFUSE_TESTS_NORM_OPTIONS_HPP

#include <kfuse/fused/stage/norm.hpp>

#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "random_cases.hpp"
#include "values.hpp"

namespace kfuse::test {

template <class Options>
Options draw_norm_options(RandomCase const& c) {
  auto random = c.random();
  constexpr double epsilons[] = {1e-6, 1e-5, 1e-3, 1, 1e-12, 0};
  bool const no_squares = c.kind == ValueKind::tiny || c.kind == ValueKind::denormal;  // in float: they need an epsilon
  Options options;
  options.epsilon = epsilons[random.below(no_squares ? 5 : 6)];
  if (random.below(2) == 0) options.weight = NormWeight::one_plus;
  if constexpr (requires { options.casting; })
    if (random.below(3) == 0) options.casting = NormCasting::llama;
  return options;
}

// What multiplies the normed values.
inline std::vector<double> factors(std::vector<double> weight, NormWeight stored) {
  for (double& v : weight) v += stored == NormWeight::one_plus ? 1 : 0;
  return weight;
}

// Of weights that are at most 2.
constexpr double largest_factor(NormWeight stored) {
  return stored == NormWeight::one_plus ? 3 : 2;
}

// What sums in float may lose of 16-bit values.
constexpr double lost_in_float = 2e-5;

// Rows of normed values times the weight, which llama rounds before. In the middle of two numbers of Element either may
// be what they are rounded to: the one that `actual` is nearer to is taken.
template <class Element>
std::vector<double> weighed(std::vector<double> normed, std::vector<double> const& weight,
                            RmsNormOptions const& options, std::vector<double> const& actual) {
  bool const rounds = options.casting == NormCasting::llama && !std::is_same_v<Element, Real<Element>>;
  auto const factor = factors(weight, options.weight);
  for (std::size_t i = 0; i < normed.size(); ++i) {
    double const f = factor[i % factor.size()];
    if (rounds) {
      double const low = rounded<Element>(normed[i] * (1 - lost_in_float)),
                   high = rounded<Element>(normed[i] * (1 + lost_in_float));
      auto const distance = [&](double n) { return std::abs(actual[i] - rounded<Element>(n * f)); };
      normed[i] = distance(low) < distance(high) ? low : high;
    }
    normed[i] *= f;
  }
  return normed;
}

// Are 16-bit numbers the expected ones, rounded, but for those in the middle of two? A rounding more or less is within
// the one unit in the last place that compare() allows.
template <class Element>
bool rounded_right(std::vector<double> const& actual, std::vector<double> const& expected) {
  if (std::is_same_v<Element, Real<Element>>) return true;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double const e = expected[i], lost = lost_in_float * std::abs(e) + 1e-4 * ulp<Element>(e);
    if (std::isfinite(e) && actual[i] != rounded<Element>(e - lost) && actual[i] != rounded<Element>(e + lost))
      return false;
  }
  return true;
}

}  // namespace kfuse::test

#endif
