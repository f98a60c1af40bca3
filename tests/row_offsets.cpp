// SPDX-License-Identifier: Apache-2.0
// Row operators on memory in which 32 bits do not count elements, or bytes.
#include <doctest/doctest.h>

#include <cstdlib>
#include <utility>

#include "row_cases.hpp"

namespace {

using namespace kfuse::test;

template <class T>
void check_first_and_last(RowOperator<T> const& run, int rows, int columns, Memory const& memory) {
  CAPTURE(run.name);
  CAPTURE(columns);
  Arguments<T> a(Space(), {0, rows, columns}, memory, {0, rows - 1});
  run(a);
  CHECK(same(a.results(), results(run, {0, 2, columns})));
}

}  // namespace

// CASES P05
TEST_CASE_TEMPLATE("rows more than 2^32 bytes apart are reached", T, AllBf16, AllDouble, Bf16ToFloat, DoubleToBf16) {
  Far far;
  for (RowOperator<T> const& run : row_operators<T>())
    for (int const columns : {4, 500, 4096}) {
      far.clear();
      // What lies between the places of a cache counts as its own.
      Guarded const near;
      bool const has_caches = run.name == "rope_qkv";
      check_first_and_last(run, 2, columns, [&](Asked const& m) {
        return has_caches && (m.name == "k_cache" || m.name == "v_cache") ? near(m) : far(m);
      });
    }
}
// On the host one operator of each kind, which takes 5 GiB and as many seconds; those who want fewer random cases want
// none of it.
constexpr bool on_host = kfuse::impl::Backend<Space>::is_host;
TEST_CASE("matrices of more than 2^31 elements are right at both ends" *
          doctest::skip(on_host && std::getenv("KFUSE_CASES") != nullptr)) {
  int checked = 0;
  for (RowOperator<AllBf16> const& run : row_operators<AllBf16>())
    for (auto const& [rows, columns] : {std::pair(524289, 4096), std::pair(8388624, 256)}) {
      if (run.rows != Rows::alone) continue;
      if (on_host && (columns != 4096 || (run.name != "embedding" && run.name != "argmax"))) continue;
      check_first_and_last(run, rows, columns, Whole());
      ++checked;
    }
  CHECK(checked >= 2);
}
