// SPDX-License-Identifier: Apache-2.0
// Kinds of values that operators meet.
#ifndef KFUSE_TESTS_VALUE_KINDS_HPP
#define KFUSE_TESTS_VALUE_KINDS_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "values.hpp"

namespace kfuse::test {

enum class ValueKind {
  ordinary,        // -2 to 2
  all_magnitudes,  // 2^-10 to 2^10
  large_mean,      // 98 to 102
  equal,           // all the same
  zeros,
  tiny,  // normal, and hardly
  denormal,
  huge,          // of which some power can still be summed
  some_nan,      // one of them at least, else ordinary
  some_infinite  // of both signs
};
constexpr char const* name(ValueKind kind) {
  constexpr char const* names[] = {"ordinary values", "all magnitudes", "a large mean",    "equal values",
                                   "zeros",           "tiny values",    "denormal values", "huge values",
                                   "some NaNs",       "some infinities"};
  return names[int(kind)];
}

// Sums of 100,000 values of this exponent, raised to `power`, can be held.
template <class Element>
double highest_exponent(int power) {
  double const sums = std::log2(largest<Real<Element>>());
  return std::min(std::log2(largest<Element>()), power == 1 ? sums : (sums - 17) / power);
}

// `count` values of a kind, which Element holds exactly.
template <class Element>
std::vector<double> values_of(ValueKind kind, std::size_t count, std::uint64_t seed, int power = 1) {
  using F = Format<Element>;
  Random random(seed);
  double const nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  double const one = random.between(-2, 2), top = highest_exponent<Element>(power);
  std::size_t const special = count > 0 ? random.bits() % count : 0;
  std::vector<double> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    double const even = random.between(-2, 2), sign = random.below(2) == 0 ? -1 : 1;
    bool const is_special = i == special || random.below(200) == 0;
    switch (kind) {
      case ValueKind::ordinary:
        x[i] = even;
        break;
      case ValueKind::all_magnitudes:
        x[i] = sign * std::exp2(5 * even);
        break;
      case ValueKind::large_mean:
        x[i] = 100 + even;
        break;
      case ValueKind::equal:
        x[i] = one;
        break;
      case ValueKind::zeros:
        x[i] = 0;
        break;
      case ValueKind::tiny:
        x[i] = sign * std::ldexp(std::exp2(2 + even), F::min_exponent);
        break;
      case ValueKind::denormal:
        x[i] = even / 2 * std::ldexp(1.0, F::min_exponent);
        break;
      case ValueKind::huge:
        x[i] = sign * std::exp2(top - 1 + even / 2);
        break;
      case ValueKind::some_nan:
        x[i] = is_special ? nan : even;
        break;
      case ValueKind::some_infinite:
        x[i] = is_special ? sign * infinity : even;
        break;
    }
  }
  return rounded<Element>(std::move(x));
}

}  // namespace kfuse::test

#endif
