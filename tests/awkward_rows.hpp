// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_TESTS_AWKWARD_ROWS_HPP
#define KFUSE_TESTS_AWKWARD_ROWS_HPP

#include <limits>
#include <vector>

#include "support.hpp"

namespace kfuse::test {

// Rows, one after the other, whose largest values are hard to find: side by side, all equal, not finite.
template <class Element>
std::vector<double> awkward_rows(int columns) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> x;
  auto const row = [&](auto const& value) {
    for (int c = 0; c < columns; ++c) x.push_back(rounded<Element>(value(c)));
  };
  row([](int c) { return double(c); });
  row([](int c) { return double(-c); });
  row([](int) { return 1.0; });
  row([=](int) { return -infinity; });
  row([=](int c) { return c % 3 == 2 ? nan : c % 5 == 0 ? infinity : -infinity; });
  row([=](int c) { return c + 1 == columns ? nan : infinity; });
  row([](int c) { return double((c * 37) % 11 - 5); });
  return x;
}

}  // namespace kfuse::test

#endif
