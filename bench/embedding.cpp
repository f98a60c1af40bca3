// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/embedding.hpp>

#include <vector>

#include "bench.hpp"

namespace {

struct Embedding {
  static constexpr int context = 1024;  // positions there are

  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"], vocabulary = sizes["vocabulary"];
    std::vector<int> tokens(rows), positions(rows);
    for (int r = 0; r < rows; ++r) {
      tokens[r] = int((r * 2654435761u) % unsigned(vocabulary));
      positions[r] = r % context;
    }
    auto const words = bench::random<Element>(memory, -1, 1, vocabulary, columns);
    auto const places = bench::random<Element>(memory, -1, 1, context, columns);
    auto const token = bench::given(memory, tokens), position = bench::given(memory, positions);
    auto const y = bench::empty<Element>(memory, rows, columns);

    auto const sum = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(words, tokens[r]);
      auto const other = bench::row<Space>(places, positions[r]);
      for (int c = 0; c < columns; ++c) values[c] += other[c];
      return values;
    };
    auto result = bench::output("y", y, sum, 2);
    result.floor = 1;  // the terms, not their sum, are what is rounded
    return {.fused =
                [=](bench::Context<Space> const& on) { kfuse::embedding(on.space, words, token, places, position, y); },
            .eager =
                [=](bench::Context<Space> const& on) {
                  kfuse::embedding(on.space, words, token, y);
                  kfuse::fuse(on.space, "kfuse::eager::add",
                              kfuse::load(y) | kfuse::add_gathered(places, position) | kfuse::store(y));
                },
            .outputs = {result}};
  }
};

bench::Register<Embedding> const entry("embedding", "y = words(token) + places(position)",
                                       {{"rows", 16384}, {"columns", 768}, {"vocabulary", 50257}});

}  // namespace
