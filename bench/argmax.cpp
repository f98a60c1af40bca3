// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/argmax.hpp>

#include <algorithm>
#include <vector>

#include "bench.hpp"

namespace {

// Greedy sampling.
struct Argmax {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"];
    auto const x = bench::random<Element>(memory, -8, 8, rows, columns);
    auto const found = bench::empty<int>(memory, rows, 1);

    auto const first_of_largest = [=](std::ptrdiff_t r) {
      auto const values = bench::row<Space>(x, r);
      return std::vector<double>{double(std::max_element(values.begin(), values.end()) - values.begin())};
    };
    auto result = bench::output("indices", found, first_of_largest);
    result.rows_checked = 64;
    auto const indices = kfuse::make_tensor(found.data, rows);
    return {.fused = [=](bench::Context<Space> const& on) { kfuse::argmax(on.space, x, indices, on.workspace); },
            .outputs = {result}};
  }
};

bench::Register<Argmax> const entry("argmax", "the column of each row's largest value",
                                    {{"rows", 4096}, {"columns", 128256}}, {{.at_least = 0.90}});

}  // namespace
