// SPDX-License-Identifier: Apache-2.0
// Row operators on very wide rows, and on very many.
#include <doctest/doctest.h>

#include <type_traits>

#include "row_cases.hpp"

namespace {

using namespace kfuse::test;

// One size is enough where only the types differ.
template <class T>
constexpr bool is_repeated = !std::is_same_v<T, AllBf16>;

}  // namespace

// CASES P08
TEST_CASE_TEMPLATE("very wide rows have the same bits in other places, and alone", T, AllBf16, AllDouble, Bf16ToFloat,
                   DoubleToBf16) {
  for (RowOperator<T> const& run : row_operators<T>()) {
    for (int const columns : {16384, 32768, 65536, 131072}) {
      if (is_repeated<T> && columns != 65536) continue;
      CAPTURE(run.name);
      CAPTURE(columns);
      auto const both = results(run, {0, 2, columns});
      CHECK(!has_nan(both));
      CHECK(same(results(run, {0, 2, columns}, Guarded({1, 3})), both));
      if (run.rows != Rows::joint) CHECK(same(results(run, {0, 1, columns}), rows_in(both, 2, 0, 1)));
    }
  }
}
TEST_CASE_TEMPLATE("the first and the last of very many rows are as they are alone", T, AllBf16, AllDouble, Bf16ToFloat,
                   DoubleToBf16) {
  for (RowOperator<T> const& run : row_operators<T>()) {
    for (int const rows : {65535, 65536, 70000, 131073}) {
      if (is_repeated<T> && rows != 70000) continue;
      CAPTURE(run.name);
      CAPTURE(rows);
      auto const all = results(run, {0, rows, 4});
      CHECK(!has_nan(all));
      if (run.rows == Rows::joint) continue;
      CHECK(same(results(run, {0, 70, 4}), rows_in(all, rows, 0, 70)));
      if (run.rows == Rows::numbered) continue;
      for (int const row : {65534, rows - 1}) CHECK(same(results(run, {row, 1, 4}), rows_in(all, rows, row, 1)));
    }
  }
}
