// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/top_k.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "awkward_rows.hpp"
#include "random_cases.hpp"
#include "simulated_lanes.hpp"
#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::fp16;
using kfuse::make_tensor;
using kfuse::top_k;
using namespace kfuse::test;

// The definition: all columns of each row, sorted; of these the first k.
std::vector<int> columns_of_largest(std::vector<double> const& x, int columns, int k) {
  std::vector<int> result, order(columns);
  for (std::size_t begin = 0; begin < x.size(); begin += columns) {
    std::iota(order.begin(), order.end(), 0);
    auto const is_larger = [&](int a, int b) {
      double const left = x[begin + a], right = x[begin + b];
      return left > right || (std::isnan(left) && !std::isnan(right));
    };
    std::stable_sort(order.begin(), order.end(), is_larger);
    result.insert(result.end(), order.begin(), order.begin() + k);
  }
  return result;
}
std::vector<double> values_at(std::vector<double> const& x, std::vector<int> const& indices, int columns, int k) {
  std::vector<double> values;
  for (std::size_t i = 0; i < indices.size(); ++i) values.push_back(x[i / k * columns + indices[i]]);
  return values;
}
std::vector<double> as_doubles(std::vector<int> const& x) {
  return {x.begin(), x.end()};
}
bool equal(std::vector<double> const& a, std::vector<double> const& b) {
  return a.size() == b.size() && same_values(a.data(), b.data(), a.size());
}

TEST_CASE("top_k is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("top_k", {}, [&]<class Element>(RandomCase& c) {
    int const most = std::min(c.columns, 64), k = 1 + (c.number % 3 == 0 ? most - 1 : c.number % most);
    auto const x = c.values<Element>(0);
    auto const in = c.matrix<Element>(0, x);
    GuardedMatrix<Element> const values(c.rows, k, c.place(1));
    GuardedMatrix<int> const indices(c.rows, k, c.place(2));
    top_k(space, in.const_view(), values.view(), indices.view());
    auto const expected = columns_of_largest(x, c.columns, k);
    c.expect(indices.values() == as_doubles(expected), "indices");
    c.expect(equal(values.values(), values_at(x, expected, c.columns, k)), "values");
    c.expect(values.guards_intact() && indices.guards_intact(), "something is written beyond the rows");
    c.unchanged("x", in, x);
    c.same_bits("indices", [&](int first, int count) {
      auto const some = view_of_nans<Element>(count, k);
      auto const places = view_of<int>(std::vector<double>(std::size_t(count) * k, -1), count, k);
      top_k(space, rows_of(in, first, count), some, places);
      return elements(places);
    });
  });
}

// Lane groups of 32 and 64, a part of one or whole teams to a row, rows that allow wide access and rows that do not.
TEST_CASE_TEMPLATE("top_k on lanes is what it is by definition, whichever lane goes first", Element, float, bf16,
                   double) {
  struct Size {
    int columns, k;
  };
  for (auto const [columns, k] : {Size{1, 1}, {7, 5}, {64, 64}, {300, 64}, {1000, 6}, {5000, 6}}) {
    CAPTURE(columns);
    CAPTURE(k);
    auto const x = awkward_rows<Element>(columns);
    int const rows = int(x.size()) / columns;
    auto const expected = columns_of_largest(x, columns, k);
    for (int const gap : {0, 1}) {
      int const stride = (columns + 7) / 8 * 8 + gap;
      std::vector<Element> memory(std::size_t(rows) * stride + 16 + gap);
      std::size_t const past = reinterpret_cast<std::size_t>(memory.data()) % 16 / sizeof(Element);
      kfuse::Tensor<Element, 2> const in{
          memory.data() + (16 / sizeof(Element) - past) % (16 / sizeof(Element)) + gap, {rows, columns}, {stride, 1}};
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c) in(r, c) = encode<Element>(x[std::size_t(r) * columns + c]);
      auto const run = [&](auto const& space) {
        std::vector<Element> values(std::size_t(rows) * k);
        std::vector<int> indices(values.size(), -1);
        top_k(space, in, make_tensor(values.data(), rows, k), make_tensor(indices.data(), rows, k));
        std::vector<double> found;
        for (Element const v : values) found.push_back(decode(v));
        CHECK(equal(found, values_at(x, indices, columns, k)));
        return indices;
      };
      CHECK(in_both_orders<SimulatedSpace<32>>(run) == expected);
      CHECK(in_both_orders<SimulatedSpace<64>>(run) == expected);
    }
  }
}

TEST_CASE("top_k of rows of 2^20 values") {
  int const columns = 1 << 20, k = 64;
  auto const x = random_values<float>(2 * std::size_t(columns), 1);
  auto const values = view_of_nans<float>(2, k);
  auto const indices = view_of<int>(std::vector<double>(2 * k, -1), 2, k);
  top_k(Space(), view_of<float>(x, 2, columns), values, indices);
  CHECK(elements(indices) == columns_of_largest(x, columns, k));
}

TEST_CASE("top_k of nothing writes nothing") {
  auto const x = view_of<float>({1, 2, 3}, 1, 3);
  top_k(Space(), view_of_nans<float>(0, 3), view_of_nans<float>(0, 2), view_of<int>({}, 0, 2));
  top_k(Space(), x, view_of_nans<float>(1, 0), view_of<int>({}, 1, 0));
  top_k(Space(), view_of_nans<float>(1, 0), view_of_nans<float>(1, 0), view_of<int>({}, 1, 0));
}

TEST_CASE("top_k refuses what does not fit, and outputs that overlap") {
  auto const x = view_of<float>(random_values<float>(3 * 70, 1), 3, 70);
  auto const before = download(x);
  auto const values = view_of_nans<float>(3, 4);
  auto const indices = view_of<int>(std::vector<double>(12, -1), 3, 4);
  auto const refused = [&](auto const& from, auto const& v, auto const& i, std::string const& why) {
    CHECK(contains(error_of([&] { top_k(Space(), from, v, i); }), "kfuse::top_k: " + why));
  };
  refused(x, view_of_nans<float>(2, 4), indices, "values: its shape is [2, 4], but x is [3, 70]");
  refused(x, view_of_nans<float>(3, 5), indices, "indices: its shape [3, 4] is not that of values");
  refused(x, view_of_nans<float>(3, 65), view_of<int>(std::vector<double>(195), 3, 65),
          "values: k is 65 and may be 64");
  refused(view_of_nans<float>(3, 3), values, indices, "values: k is 4, but rows have 3 values");
  refused(x, Kokkos::subview(x, Kokkos::ALL, Kokkos::pair(2, 6)), indices, "values, indices: they overlap x");
  Kokkos::View<float**, Kokkos::LayoutRight, Space, Kokkos::MemoryUnmanaged> const same(
      reinterpret_cast<float*>(indices.data()), 3, 4);
  refused(x, same, indices, "values, indices: their rows overlap");
  kfuse::Tensor<float, 2> const folded{values.data(), {3, 4}, {2, 1}};
  refused(x, folded, indices, "values, indices: their rows overlap");
  for (double const v : download(values)) CHECK(std::isnan(v));
  CHECK(download(indices) == std::vector<double>(12, -1));
  CHECK(download(x) == before);
}

TEST_CASE("top_k reads its rows once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 64}, {64, 1}}, values{nullptr, {10, 5}, {5, 1}};
  kfuse::Tensor<int, 2> const indices{nullptr, {10, 5}, {5, 1}};
  CHECK(kfuse::top_k_traffic(Space(), x, values, indices).bytes() == 10 * 64 * 2 + 10 * 5 * (2 + 4));
}

}  // namespace
