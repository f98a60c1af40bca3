// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/embedding.hpp>

#include <cstdint>
#include <numeric>
#include <vector>

#include "../tests/dropped.hpp"
#include "bench.hpp"

namespace {

// One token a row, spread over the vocabulary and, as long as there are enough, all distinct: every row that is looked
// up comes from memory, and the bytes that are counted are those that move.
std::vector<int> distinct_tokens(int rows, int vocabulary) {
  std::int64_t step = std::int64_t(0.618 * vocabulary) | 1;
  while (std::gcd(step, std::int64_t(vocabulary)) > 1) step += 2;
  std::vector<int> tokens(rows);
  for (int r = 0; r < rows; ++r) tokens[r] = int(r * step % vocabulary);
  return tokens;
}

// As a model is trained: one table, and dropout.
struct Embedding {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"], vocabulary = sizes["vocabulary"];
    kfuse::RandomState const random{1, 2};
    auto const tokens = distinct_tokens(rows, vocabulary);
    auto const words = bench::random<Element>(memory, -1, 1, vocabulary, columns);
    auto const token = bench::given(memory, tokens);
    auto const y = bench::empty<Element>(memory, rows, columns);

    auto const dropped = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(words, tokens[r]);
      for (int c = 0; c < columns; ++c) values[c] = kfuse::test::is_dropped(0.1, random, r, c) ? 0 : values[c] / 0.9;
      return values;
    };
    return {.fused =
                [=](bench::Context<Space> const& on) {
                  kfuse::embedding(on.space, words, token, y, {.dropout = 0.1, .random = random});
                },
            .eager =
                [=](bench::Context<Space> const& on) {
                  kfuse::embedding(on.space, words, token, y);
                  kfuse::fuse(on.space, "kfuse::eager::dropout",
                              kfuse::load(y) | kfuse::dropout(0.1, random) | kfuse::store(y));
                },
            .outputs = {bench::output("y", y, dropped, 2)}};
  }
};

// As BERT begins.
struct EmbeddingSum {
  static constexpr int context = 512, types = 2;  // positions and token types there are

  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], columns = sizes["columns"], vocabulary = sizes["vocabulary"];
    auto const tokens = distinct_tokens(rows, vocabulary);
    std::vector<int> positions(rows), kinds(rows);
    for (int r = 0; r < rows; ++r) {
      positions[r] = r % context;
      kinds[r] = r / 100 % types;
    }
    auto const words = bench::random<Element>(memory, -1, 1, vocabulary, columns);
    auto const places = bench::random<Element>(memory, -1, 1, context, columns);
    auto const segments = bench::random<Element>(memory, -1, 1, types, columns);
    auto const token = bench::given(memory, tokens), position = bench::given(memory, positions),
               kind = bench::given(memory, kinds);
    auto const y = bench::empty<Element>(memory, rows, columns);

    auto const sum = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(words, tokens[r]);
      auto const place = bench::row<Space>(places, positions[r]), segment = bench::row<Space>(segments, kinds[r]);
      for (int c = 0; c < columns; ++c) values[c] += place[c] + segment[c];
      return values;
    };
    auto result = bench::output("y", y, sum, 3);
    result.floor = 1;  // the terms, not their sum, are what is rounded
    return {.fused =
                [=](bench::Context<Space> const& on) {
                  kfuse::embedding(on.space, words, token, places, position, segments, kind, y);
                },
            .eager =
                [=](bench::Context<Space> const& on) {
                  auto const add = [&](auto const& table, auto const& indices) {
                    kfuse::fuse(on.space, "kfuse::eager::add",
                                kfuse::load(y) | kfuse::add_gathered(table, indices) | kfuse::store(y));
                  };
                  kfuse::embedding(on.space, words, token, y);
                  add(places, position);
                  add(segments, kind);
                },
            .outputs = {result}};
  }
};

bench::Register<Embedding> const entry("embedding", "y = dropout(words(token)), tokens distinct",
                                       {{"rows", 16384}, {"columns", 4096}, {"vocabulary", 128256}},
                                       {{.at_least = 0.92}});
bench::Register<EmbeddingSum> const sum("embedding_sum", "y = words(token) + places(position) + segments(kind)",
                                        {{"rows", 16384}, {"columns", 768}, {"vocabulary", 30522}});

}  // namespace
