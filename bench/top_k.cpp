// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/top_k.hpp>

#include <algorithm>
#include <numeric>
#include <vector>

#include "bench.hpp"

namespace {

struct TopK {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"], k = sizes["k"];
    auto const x = bench::random<Element>(memory, -8, 8, rows, columns);
    auto const values = bench::empty<Element>(memory, rows, k);
    auto const indices = bench::empty<int>(memory, rows, k);

    auto const columns_of_largest = [=](std::vector<double> const& row) {
      std::vector<double> order(columns);
      std::iota(order.begin(), order.end(), 0);
      auto const is_before = [&](double a, double b) {
        return row[int(a)] > row[int(b)] || (row[int(a)] == row[int(b)] && a < b);
      };
      std::partial_sort(order.begin(), order.begin() + k, order.end(), is_before);
      order.resize(k);
      return order;
    };
    auto places = bench::output("indices", indices,
                                [=](std::ptrdiff_t r) { return columns_of_largest(bench::row<Space>(x, r)); });
    auto largest = bench::output("values", values, [=](std::ptrdiff_t r) {
      auto const row = bench::row<Space>(x, r);
      auto result = columns_of_largest(row);
      for (double& column : result) column = row[int(column)];
      return result;
    });
    places.rows_checked = largest.rows_checked = 64;
    return {.fused = [=](bench::Context<Space> const& on) { kfuse::top_k(on.space, x, values, indices); },
            .outputs = {places, largest}};
  }
};

bench::Register<TopK> const entry("top_k", "the k largest values of each row and their columns",
                                  {{"rows", 4096}, {"columns", 128256}, {"k", 50}});

}  // namespace
