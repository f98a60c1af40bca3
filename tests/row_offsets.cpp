// SPDX-License-Identifier: Apache-2.0
// Row operators on memory in which 32 bits do not count elements, or bytes.
#include <kfuse/fused/cross_entropy.hpp>
#include <kfuse/fused/dropout.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "dropped.hpp"
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

// On the host this takes 5 GiB and about a minute, for one operator of each kind; those who want fewer random cases
// want none of it.
constexpr bool on_host = kfuse::impl::Backend<Space>::is_host;
bool skips_whole_matrices() {
  return on_host && std::getenv("KFUSE_CASES") != nullptr;
}

// 2^31 elements and a row.
constexpr int many_rows = 524289, many_columns = 4096;
using ManyRows = Kokkos::View<kfuse::bf16**, Kokkos::LayoutRight, Space>;

std::vector<double> row_of(ManyRows const& matrix, int row) {
  return download(Kokkos::subview(matrix, Kokkos::pair(row, row + 1), Kokkos::ALL));
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
TEST_CASE("matrices of more than 2^31 elements are right at both ends" * doctest::skip(skips_whole_matrices())) {
  int checked = 0;
  for (RowOperator<AllBf16> const& run : row_operators<AllBf16>())
    for (auto const& [rows, columns] : {std::pair(many_rows, many_columns), std::pair(8388624, 256)}) {
      if (run.rows != Rows::alone) continue;
      if (on_host && (columns != 4096 || (run.name != "embedding" && run.name != "argmax"))) continue;
      check_first_and_last(run, rows, columns, Whole());
      ++checked;
    }
  CHECK(checked >= 2);
}
// Whose results depend on a row's number.
TEST_CASE("dropout draws numbers of their own for rows past 2^31 elements" * doctest::skip(skips_whole_matrices())) {
  kfuse::RandomState const state{5, 9};
  ManyRows const x("x", many_rows, many_columns);
  Kokkos::deep_copy(x, kfuse::bf16{0x3f80});  // 1
  kfuse::dropout(Space(), x, x, {.p = 0.5, .random = state});
  for (int const row : {0, many_rows - 1}) {
    CAPTURE(row);
    auto const y = row_of(x, row);
    int wrong = 0;
    for (int i = 0; i < many_columns; ++i)
      wrong += y[std::size_t(i)] != (is_dropped(0.5, state, std::uint64_t(row), i) ? 0 : 2);
    CHECK(wrong == 0);
  }
}
// Whose result depends on all rows. Only the first and the last are not ignored.
TEST_CASE("a mean of losses and its gradient reach rows past 2^31 elements" * doctest::skip(skips_whole_matrices())) {
  int const last = many_rows - 1, label = 7;
  ManyRows const logits("logits", many_rows, many_columns);
  Kokkos::View<std::int64_t*, Space> const labels("labels", many_rows);
  Kokkos::View<float*, Space> const loss("loss", 1), total_weight("total_weight", 1);
  Kokkos::deep_copy(labels, -100);
  Kokkos::deep_copy(Kokkos::subview(labels, 0), label);
  Kokkos::deep_copy(Kokkos::subview(labels, last), label);
  Kokkos::deep_copy(Kokkos::subview(logits, last, label), kfuse::bf16{0x40a0});  // 5
  kfuse::Workspace<Space> workspace(std::size_t(1) << 26);
  kfuse::cross_entropy(Space(), logits, labels, loss, logits,
                       {.total_weight = kfuse::make_tensor(total_weight.data(), 1)}, workspace);

  double const sum_of_first = many_columns, sum_of_last = many_columns - 1 + std::exp(5.0);
  CHECK(download(total_weight)[0] == 2);
  CHECK(download(loss)[0] == doctest::Approx((std::log(sum_of_first) + std::log(sum_of_last) - 5) / 2).epsilon(1e-6));
  auto const first_gradient = row_of(logits, 0), ignored = row_of(logits, many_rows / 2),
             last_gradient = row_of(logits, last);
  CHECK(first_gradient[label] == doctest::Approx((1 / sum_of_first - 1) / 2).epsilon(0x1p-8));
  CHECK(last_gradient[label] == doctest::Approx((std::exp(5.0) / sum_of_last - 1) / 2).epsilon(0x1p-8));
  CHECK(last_gradient[0] == doctest::Approx(1 / sum_of_last / 2).epsilon(0x1p-8));
  CHECK(std::count(ignored.begin(), ignored.end(), 0.0) == many_columns);
}
