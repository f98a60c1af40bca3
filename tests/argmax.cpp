// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/argmax.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "awkward_rows.hpp"
#include "random_cases.hpp"
#include "simulated_lanes.hpp"
#include "support.hpp"

namespace {

using kfuse::argmax;
using kfuse::bf16;
using kfuse::fp16;
using namespace kfuse::test;

constexpr double infinity = std::numeric_limits<double>::infinity(),
                 nan_value = std::numeric_limits<double>::quiet_NaN();

// The definition: the first column that none of the others exceeds. A NaN exceeds every number.
std::vector<int> columns_of_largest(std::vector<double> const& x, int columns) {
  std::vector<int> result;
  for (std::size_t begin = 0; begin < x.size(); begin += columns) {
    int largest = 0;
    for (int c = 1; c < columns; ++c) {
      double const value = x[begin + c], best = x[begin + largest];
      if (value > best || (std::isnan(value) && !std::isnan(best))) largest = c;
    }
    result.push_back(largest);
  }
  return result;
}
std::vector<double> values_at(std::vector<double> const& x, std::vector<int> const& indices, int columns) {
  std::vector<double> values;
  for (std::size_t r = 0; r < indices.size(); ++r) values.push_back(x[r * columns + indices[r]]);
  return values;
}

// Memory that the operator must not touch but for [1, 1 + n).
template <class Element>
struct Guarded {
  Kokkos::View<Element*, Space> all;
  explicit Guarded(int n) : all("all", n + 2) { upload(all, std::vector<double>(n + 2, -7)); }
  auto inside() const { return Kokkos::subview(all, Kokkos::pair<int, int>(1, int(all.size()) - 1)); }
  std::vector<double> values() const {
    auto const host = download(all);
    CHECK(host.front() == -7);
    CHECK(host.back() == -7);
    return {host.begin() + 1, host.end() - 1};
  }
};

TEST_CASE("argmax is right on 2,000 random shapes") {
  Space const space = another_instance();
  kfuse::Workspace<Space> workspace(1 << 20);
  for_random_cases("argmax", {}, [&]<class Element>(RandomCase& c) {
    auto const x = c.values<Element>(0);
    auto const in = c.matrix<Element>(0, x);
    Guarded<int> const indices(c.rows);
    Guarded<Element> const values(c.rows);
    auto const expected = columns_of_largest(x, c.columns);
    argmax(space, in.const_view(), indices.inside());
    c.expect(indices.values() == std::vector<double>(expected.begin(), expected.end()), "indices");
    Kokkos::deep_copy(indices.inside(), -1);
    argmax(space, in.const_view(), values.inside(), indices.inside(), workspace);
    c.expect(indices.values() == std::vector<double>(expected.begin(), expected.end()), "indices beside values");
    auto const largest = values_at(x, expected, c.columns), found = values.values();
    c.expect(same_values(found.data(), largest.data(), found.size()), "values");
    c.unchanged("x", in, x);
    c.same_bits("indices", [&](int first, int count) {
      auto const some = view_of_nans<int>(count);
      argmax(space, rows_of(in, first, count), some);
      return elements(some);
    });
  });
}

TEST_CASE_TEMPLATE("argmax takes the first of equals, a NaN before any number, and column 0 where all are -infinity",
                   Element, double, float, bf16, fp16) {
  for (int const columns : {1, 3, 8, 257, 40000}) {
    CAPTURE(columns);
    int const last = columns - 1, middle = columns / 2;
    auto const index_of = [&](double background, std::vector<std::pair<int, double>> const& others) {
      std::vector<double> x(columns, background);
      for (auto const& [column, value] : others) x[column] = value;
      auto const indices = view_of<int>({-1}, 1);
      argmax(Space(), view_of<Element>(x, 1, columns), indices);
      return elements(indices)[0];
    };
    CHECK(index_of(-infinity, {}) == 0);
    CHECK(index_of(infinity, {}) == 0);
    CHECK(index_of(nan_value, {}) == 0);
    CHECK(index_of(0, {}) == 0);
    CHECK(index_of(0, {{middle, -0.0}}) == 0);
    CHECK(index_of(-0.0, {{last, 0}}) == 0);
    CHECK(index_of(-infinity, {{last, -1}}) == last);
    CHECK(index_of(-3, {{last, -1}, {middle, -1}}) == middle);
    CHECK(index_of(-3, {{last, infinity}}) == last);
    CHECK(index_of(infinity, {{last, nan_value}}) == last);
    CHECK(index_of(-infinity, {{last, nan_value}, {middle, nan_value}}) == middle);
  }
}

TEST_CASE_TEMPLATE("argmax of rows of 2^20 values", Element, float, bf16) {
  int const rows = 3, columns = 1 << 20;
  auto x = random_values<Element>(std::size_t(rows) * columns, 1);
  x[2 * columns - 1] = 3;                             // the last value of the second row
  x[2 * columns + 1000000] = x[3 * columns - 1] = 3;  // two of the third
  auto const in = view_of<Element>(x, rows, columns);
  auto const expected = columns_of_largest(x, columns);
  auto const indices = view_of<int>(std::vector<double>(rows, -1), rows);
  argmax(Space(), in, indices);
  CHECK(elements(indices) == expected);
  Kokkos::deep_copy(indices, -1);
  auto const values = view_of_nans<Element>(rows);
  kfuse::Workspace<Space> workspace(1 << 20);
  argmax(Space(), in, values, indices, workspace);
  CHECK(elements(indices) == expected);
  CHECK(download(values) == values_at(x, expected, columns));
}

// In a pack without a NaN the largest is found by pairs, in others one after the other; infinities may look like
// either.
TEST_CASE("argmax of packs of awkward values is the first of the largest") {
  double const kinds[] = {-infinity, -1, -0.0, 0, 1, infinity, nan_value, 3e38};
  for (int const columns : {8, 24}) {
    int const rows = 4096;
    std::vector<double> x;
    for (double const u : random_values<double>(std::size_t(rows) * columns, columns, 0, 1))
      x.push_back(kinds[std::min(7, int(u * (x.size() / columns % 2 == 0 ? 8 : 6)))]);
    auto const indices = view_of<int>(std::vector<double>(rows, -1), rows);
    argmax(Space(), view_of<float>(x, rows, columns), indices);
    CHECK(elements(indices) == columns_of_largest(x, columns));
  }
}

// Parts of a lane group, whole teams, and segments to a row; whole packs, and values one by one.
TEST_CASE("argmax on lanes is what it is by definition, whichever lane goes first") {
  for (int const columns : {1, 7, 64, 500, 5000, 40000})
    for (int const shift : {0, 1}) {
      CAPTURE(columns);
      CAPTURE(shift);
      auto const x = awkward_rows<float>(columns);
      int const rows = int(x.size()) / columns;
      std::vector<float> memory(x.begin(), x.end());
      memory.insert(memory.begin(), shift, 0);
      auto const in = kfuse::make_tensor(memory.data() + shift, rows, columns);
      auto const run = [&](auto const& space) {
        std::vector<int> indices(rows, -1);
        auto workspace = kfuse::Workspace<std::remove_cvref_t<decltype(space)>>(1 << 16);
        argmax(space, in, kfuse::make_tensor(indices.data(), rows), workspace);
        return indices;
      };
      auto const expected = columns_of_largest(x, columns);
      CHECK(in_both_orders<SimulatedSpace<32>>(run) == expected);
      CHECK(in_both_orders<SimulatedSpace<64>>(run, {.lanes = 1 << 20}) == expected);
    }
}

TEST_CASE("argmax after other stages, whose values are what counts") {
  auto const x = view_of<float>({1, -5, 3, 2, 4, -9}, 2, 3);
  auto const indices = view_of<int>({-1, -1}, 2);
  auto const values = view_of_nans<double>(2);
  kfuse::fuse(Space(), "test", kfuse::load(x) | kfuse::scale(-1) | kfuse::argmax(values, indices) | kfuse::store(x));
  CHECK(elements(indices) == std::vector<int>{1, 2});
  CHECK(download(values) == std::vector<double>{5, 9});
  CHECK(download(x) == std::vector<double>{-1, 5, -3, -2, -4, 9});
}

TEST_CASE("argmax of no rows writes nothing; rows without columns are refused") {
  auto const indices = view_of<int>({-1, -1}, 2);
  argmax(Space(), view_of_nans<float>(0, 8), view_of<int>({}, 0));
  CHECK(
      contains(error_of([&] { argmax(Space(), view_of_nans<float>(2, 0), indices); }), "kfuse::argmax: argmax: rows"));
  CHECK(elements(indices) == std::vector<int>{-1, -1});
}

TEST_CASE("argmax refuses what does not fit, and outputs that overlap") {
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4);
  auto const indices = view_of<int>({-1, -1, -1}, 3), two = view_of<int>({-1, -1}, 2);
  auto const values = view_of_nans<float>(3);
  auto const before = download(x);
  CHECK(contains(error_of([&] { argmax(Space(), x, two); }), "kfuse::argmax: indices: has 2 entries"));
  CHECK(contains(error_of([&] { argmax(Space(), x, view_of_nans<float>(4), indices); }),
                 "kfuse::argmax: values: has 4 entries"));
  auto const inside = Kokkos::subview(x, 1, Kokkos::pair(0, 3));
  CHECK(contains(error_of([&] { argmax(Space(), x, inside, indices); }), "kfuse::argmax: values: overlaps x"));
  Kokkos::View<float*, Space, Kokkos::MemoryUnmanaged> const same(reinterpret_cast<float*>(indices.data()), 3);
  CHECK(contains(error_of([&] { argmax(Space(), x, same, indices); }), "kfuse::argmax: values: overlaps indices"));
  CHECK(elements(indices) == std::vector<int>{-1, -1, -1});
  for (double const v : download(values)) CHECK(std::isnan(v));
  CHECK(download(x) == before);
}

TEST_CASE("argmax reads its rows once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 64}, {64, 1}};
  kfuse::Tensor<int, 1> const indices{nullptr, {10}, {1}};
  kfuse::Tensor<bf16, 1> const values{nullptr, {10}, {1}};
  CHECK(kfuse::argmax_traffic(Space(), x, indices).bytes() == 10 * 64 * 2 + 10 * 4);
  CHECK(kfuse::argmax_traffic(Space(), x, values, indices).bytes() == 10 * 64 * 2 + 10 * 4 + 10 * 2);
}

}  // namespace
