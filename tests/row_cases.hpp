// SPDX-License-Identifier: Apache-2.0
// What the tests of all row operators share: row_cases.cpp, row_sizes.cpp, row_offsets.cpp, row_arguments.cpp.
#ifndef KFUSE_TESTS_ROW_CASES_HPP
#define KFUSE_TESTS_ROW_CASES_HPP

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "row_operators.hpp"

namespace kfuse::test {

template <class T>
std::vector<double> results(RowOperator<T> const& run, Part const& part, Memory const& memory = Guarded()) {
  Arguments<T> a(Space(), part, memory);
  run(a);
  return a.results();
}

// The results of some of `rows` rows.
inline std::vector<double> rows_in(std::vector<double> const& all, int rows, int first, int count) {
  auto const width = std::ptrdiff_t(all.size()) / rows;
  return {all.begin() + first * width, all.begin() + (first + count) * width};
}
inline bool has_nan(std::vector<double> const& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}
inline bool same(std::vector<double> const& a, std::vector<double> const& b) {
  return a.size() == b.size() && same_values(a.data(), b.data(), a.size());
}

}  // namespace kfuse::test

TYPE_TO_STRING_AS("bf16", kfuse::test::AllBf16);
TYPE_TO_STRING_AS("double", kfuse::test::AllDouble);
TYPE_TO_STRING_AS("bf16 to float", kfuse::test::Bf16ToFloat);
TYPE_TO_STRING_AS("double to bf16", kfuse::test::DoubleToBf16);

#endif
