// SPDX-License-Identifier: Apache-2.0
// When a result agrees with its definition in double.
#ifndef KFUSE_TESTS_AGREEMENT_HPP
#define KFUSE_TESTS_AGREEMENT_HPP

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "values.hpp"

namespace kfuse::test {

// The relative error a result may have: rounding to Element, and the float (or double) arithmetic before it.
template <class Element>
constexpr double tolerance() {
  if constexpr (std::same_as<Element, double>)
    return 1e-12;
  else if constexpr (std::same_as<Element, float>)
    return 1e-5;
  else
    return 1.02 / double(2 << Format<Element>::mantissa);
}

// The largest difference relative to max(|expected|, floor). NaN on one side only wins over every number; infinities
// must be equal.
inline double deviation(std::vector<double> const& actual, std::vector<double> const& expected, double floor = 1e-2) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
    double const d = std::abs(actual[i] - expected[i]) / std::max(std::abs(expected[i]), floor);
    if (!(d <= largest)) largest = d;
    if (std::isnan(largest)) break;
  }
  return largest;
}

// Where actual is not within one unit in the last place of the rounded expected values, nor within 1e-13 (fp64) or 1e-6
// (narrower types: their sums are kept in float) of its row's scale, which is the largest finite |expected| of the row.
// A test of an operator in which large numbers cancel gives these numbers as scales instead, one for each row. NaNs
// stand where NaNs are expected and nowhere else; infinities are equal. Empty if nothing is wrong.
template <class Element>
std::string disagreement(std::vector<double> const& actual, std::vector<double> const& expected, int columns,
                         std::vector<double> const& scales = {}) {
  constexpr double bound = std::same_as<Element, double> ? 1e-13 : 1e-6;
  if (actual.size() != expected.size()) return "has another number of values than the definition";
  std::size_t wrong = 0;
  std::string first;
  for (std::size_t begin = 0; begin < actual.size(); begin += columns) {
    double scale = 0;
    for (std::size_t i = begin; i < begin + columns; ++i)
      if (std::isfinite(expected[i])) scale = std::max(scale, std::abs(expected[i]));
    if (!scales.empty()) scale = scales[begin / columns];
    for (std::size_t i = begin; i < begin + columns; ++i) {
      double const want = rounded_or_infinite<Element>(expected[i]);
      if (actual[i] == want || (std::isnan(actual[i]) && std::isnan(want))) continue;
      double const allowed = std::max(bound * scale, ulp<Element>(expected[i]));
      if (std::isfinite(want) && std::abs(actual[i] - want) <= allowed) continue;
      char text[160];
      std::snprintf(text, sizeof(text), "(%zu, %zu) is %.17g instead of %.17g, which may differ by %.3g",
                    begin / columns, i % columns, actual[i], want, allowed);
      if (wrong++ == 0) first = text;
    }
  }
  return wrong < 2 ? first : first + "; " + std::to_string(wrong - 1) + " others are wrong, too";
}

// Are values the same, bit by bit, but for the bits of NaNs?
template <class Element>
bool same_values(Element const* a, Element const* b, std::size_t n) {
  if (n == 0 || std::memcmp(a, b, n * sizeof(Element)) == 0) return true;
  for (std::size_t i = 0; i < n; ++i)
    if (std::memcmp(a + i, b + i, sizeof(Element)) != 0 && !(std::isnan(decode(a[i])) && std::isnan(decode(b[i]))))
      return false;
  return true;
}

}  // namespace kfuse::test

#endif
