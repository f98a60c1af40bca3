// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/log_softmax.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::fp16;
using kfuse::log_softmax;
using namespace kfuse::test;

constexpr double infinity = std::numeric_limits<double>::infinity();

// The definition; a row of -infinity alone stays as it is.
std::vector<double> reference(std::vector<double> const& x, int columns) {
  std::vector<double> y(x);
  for (std::size_t first = 0; first < x.size(); first += columns) {
    auto const row = x.begin() + std::ptrdiff_t(first);
    if (std::all_of(row, row + columns, [](double v) { return v == -infinity; })) continue;
    double high = -infinity, sum = 0;
    for (int c = 0; c < columns; ++c) high = std::max(high, row[c]);
    for (int c = 0; c < columns; ++c) sum += std::exp(row[c] - high);
    for (int c = 0; c < columns; ++c) y[first + c] = (row[c] - high) - std::log(sum);
  }
  return y;
}

// A result is a difference of numbers near 1 or larger, also where it is 0, as that of a row of one value.
std::vector<double> scales(std::vector<double> const& expected, int columns) {
  std::vector<double> scales(expected.size() / columns, 1);
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (std::isfinite(expected[i])) scales[i / columns] = std::max(scales[i / columns], std::abs(expected[i]));
  return scales;
}

template <class Element>
std::vector<double> of(std::vector<double> const& x, int columns) {
  int const rows = int(x.size() / columns);
  auto const y = view_of_nans<Element>(rows, columns);
  log_softmax(Space(), view_of<Element>(x, rows, columns), y);
  return download(y);
}

TEST_CASE_TEMPLATE("log_softmax agrees with its definition in double", Element, double, float, bf16, fp16) {
  Space const space = another_instance();
  for (int const columns : {1, 5, 17, 64, 511, 781, 1023, 4096, 10001, 32768, 131072})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 3}}) {
      CAPTURE(columns);
      CAPTURE(place.shift);
      int const rows = 3;
      auto const x = random_values<Element>(std::size_t(rows) * columns, columns, -4, 4);
      GuardedMatrix<Element> const in(rows, columns, x, place), out(rows, columns, place);
      log_softmax(space, in.const_view(), out.view());
      auto const y = reference(x, columns);
      auto const fault = disagreement<Element>(out.values(), y, columns, scales(y, columns));
      CHECK_MESSAGE(fault.empty(), fault);
      CHECK(out.guards_intact());
      CHECK(in.values() == x);
    }
}

TEST_CASE("log_softmax is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("log_softmax", {}, [&]<class Element>(RandomCase& c) {
    auto const x = c.values<Element>(0);
    auto const in = c.matrix<Element>(0, x), out = c.matrix<Element>(1);
    log_softmax(space, in.const_view(), out.view());
    auto const expected = reference(x, c.columns);
    c.compare("y", out, expected, scales(expected, c.columns));
    c.unchanged("x", in, x);
    c.same_bits("y", [&](int first, int count) {
      auto const y = view_of_nans<Element>(count, c.columns);
      log_softmax(space, rows_of(in, first, count), y);
      return elements(y);
    });
  });
}

// CASES P15
TEST_CASE("log_softmax keeps differences of values that are large") {
  auto const y = of<float>({-1e7, -1e7, -9999999, 3e38, -3e38, 3e38}, 3);
  CHECK(deviation(y, {-1.551444714, -1.551444714, -0.551444714, -std::log(2.0), -infinity, -std::log(2.0)}) <= 1e-6);
}
TEST_CASE("log_softmax finds the one finite value among 100000") {
  int const columns = 100000;
  for (int const place : {0, 1, 50000, 99999}) {
    std::vector<double> x(columns, -infinity), expected(columns, -infinity);
    x[place] = 10;
    expected[place] = 0;
    CHECK(of<float>(x, columns) == expected);
  }
}
TEST_CASE_TEMPLATE("log_softmax of a row of -infinity is -infinity, and of a NaN or +infinity NaN", Element, float,
                   bf16, double) {
  for (int const columns : {1, 3, 70, 5000, 40000}) {
    std::vector<double> x(std::size_t(4) * columns, 1), expected(x.size(), -std::log(double(columns)));
    std::fill_n(x.begin(), columns, -infinity);
    std::fill_n(expected.begin(), columns, -infinity);
    x[columns + columns / 3] = NAN;
    x[std::size_t(2) * columns + columns / 2] = infinity;
    std::fill_n(expected.begin() + columns, 2 * columns, NAN);
    CHECK(deviation(of<Element>(x, columns), expected) <= tolerance<Element>());
  }
}

TEST_CASE("log_softmax in place, with a workspace, or to another type") {
  for (int const columns : {129, 1024, 131072 + 3}) {
    auto const x = view_of<float>(random_values<float>(std::size_t(2) * columns, 1), 2, columns);
    auto const y = view_of_nans<float>(2, columns), z = view_of_nans<float>(2, columns);
    auto const narrow = view_of_nans<bf16>(2, columns);
    kfuse::Workspace<Space> workspace(1 << 20);
    workspace.poison(Space());
    log_softmax(Space(), x, y);
    log_softmax(Space(), x, z, workspace);
    CHECK(same_bits(y, z));
    log_softmax(Space(), x, narrow);
    CHECK(deviation(download(narrow), download(y)) <= tolerance<bf16>());
    log_softmax(Space(), x, x);
    CHECK(same_bits(y, x));
  }
}

// CASES P09
TEST_CASE("log_softmax of nothing writes nothing") {
  log_softmax(Space(), view_of_nans<float>(0, 4), view_of_nans<float>(0, 4));
  log_softmax(Space(), view_of_nans<float>(4, 0), view_of_nans<float>(4, 0));
}

TEST_CASE("log_softmax refuses what does not fit, and writes nothing") {
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4), y = view_of_nans<float>(4, 3);
  CHECK(contains(error_of([&] { log_softmax(Space(), x, y); }), "kfuse::log_softmax: y: shape [4, 3]"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("log_softmax moves its arguments once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 64}, {64, 1}};
  kfuse::Tensor<float, 2> const y{nullptr, {10, 64}, {64, 1}};
  CHECK(kfuse::log_softmax_traffic(Space(), x, y) ==
        kfuse::Traffic{.bytes_read = 10 * 64 * 2, .bytes_written = 10 * 64 * 4, .flops = 6 * 10 * 64});
}

}  // namespace
