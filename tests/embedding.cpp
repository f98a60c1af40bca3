// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/embedding.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "dropped.hpp"
#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::DataFault;
using kfuse::embedding;
using kfuse::fp16;
using namespace kfuse::test;

// The definition: one row of the table for each index, zeros for an index outside it; added to y.
void add_rows(std::vector<double>& y, std::vector<double> const& table, std::vector<double> const& indices, int columns,
              double scale = 1) {
  int const entries = int(table.size()) / columns;
  for (std::size_t r = 0; r < indices.size(); ++r)
    for (int c = 0; c < columns; ++c)
      if (indices[r] >= 0 && indices[r] < entries)
        y[r * columns + c] += scale * table[std::size_t(indices[r]) * columns + c];
}

TEST_CASE_TEMPLATE("embedding sums rows of one, two or three tables", Element, double, float, bf16, fp16) {
  Space const space = another_instance();
  std::vector<double> const words{3, 0, 6, 3, 2}, places{0, 1, 2, 3, 4}, kinds{0, 1, 1, 0, 0};
  for (int const columns : {1, 31, 384, 4097})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 3}}) {
      CAPTURE(columns);
      CAPTURE(place.shift);
      auto const word = random_values<Element>(std::size_t(7) * columns, 1);
      auto const position = random_values<Element>(std::size_t(5) * columns, 2);
      auto const kind = random_values<Element>(std::size_t(2) * columns, 3);
      GuardedMatrix<Element> const word_table(7, columns, word, place), position_table(5, columns, position, place);
      GuardedMatrix<Element> const kind_table(2, columns, kind, place), y(5, columns, place);
      auto const w = view_of<int>(words, 5), p = view_of<int>(places, 5), k = view_of<int>(kinds, 5);
      std::vector<double> expected(std::size_t(5) * columns, 0);

      embedding(space, word_table.const_view(), w, y.view());
      add_rows(expected, word, words, columns);
      CHECK(y.values() == expected);

      embedding(space, word_table.const_view(), w, position_table.const_view(), p, y.view());
      add_rows(expected, position, places, columns);
      CHECK(deviation(y.values(), expected) <= tolerance<Element>());

      embedding(space, word_table.const_view(), w, position_table.const_view(), p, kind_table.const_view(), k,
                y.view());
      add_rows(expected, kind, kinds, columns);
      CHECK(deviation(y.values(), expected) <= tolerance<Element>());
      CHECK(y.guards_intact());
      CHECK(word_table.values() == word);
    }
}

TEST_CASE("embedding is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("embedding", {}, [&]<class Element>(RandomCase& c) {
    Random random(c.seed);
    int const tables = c.kind == ValueKind::huge ? 1 : 1 + random.below(3);  // huge values have no sum
    double const scale = random.below(2) == 0 ? 1 : -0.5;
    constexpr double probabilities[] = {0, 0.1, 0.5, 1};
    double const probability = probabilities[c.seed % 4];
    kfuse::RandomState const state{c.seed, c.seed >> 16};
    std::vector<GuardedMatrix<Element>> table;
    std::vector<std::vector<double>> given, places;
    std::vector<double> expected(std::size_t(c.rows) * c.columns, 0), scales(c.rows, 0);
    Kokkos::View<int, Space> const status("status");
    bool outside = false;
    for (int t = 0; t < tables; ++t) {
      int const entries = 1 + random.below(9);
      given.push_back(c.values<Element>(t, std::size_t(entries) * c.columns));
      table.emplace_back(entries, c.columns, given[t], c.place(t));
      places.emplace_back();
      for (int r = 0; r < c.rows; ++r) {
        places[t].push_back(random.below(entries + 2) - 1);
        outside = outside || places[t][r] < 0 || places[t][r] >= entries;
      }
      add_rows(expected, given[t], places[t], c.columns, t == 0 ? scale : 1);
      double largest = 0;
      for (double const v : given[t])
        if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
      for (double& s : scales) s = std::max(s, largest);
    }
    for (double& s : scales) s /= probability < 1 ? 1 - probability : 1;
    auto const run = [&](int first, int count, auto const& y) {
      auto const t = [&](int i) { return table[i].const_view(); };
      auto const p = [&](int i) {
        return view_of<int>({places[i].begin() + first, places[i].begin() + first + count}, count);
      };
      kfuse::EmbeddingOptions const options{.scale = scale, .dropout = probability, .random = state, .status = status};
      if (tables == 1) embedding(space, t(0), p(0), y, options);
      if (tables == 2) embedding(space, t(0), p(0), t(1), p(1), y, options);
      if (tables == 3) embedding(space, t(0), p(0), t(1), p(1), t(2), p(2), y, options);
    };
    auto const y = c.matrix<Element>(3);
    run(0, c.rows, y.view());
    c.compare("y", y, dropped(expected, c.columns, probability, state), scales);
    c.expect(elements(status)[0] == int(outside ? DataFault::index : DataFault::none), "status");
    for (int t = 0; t < tables; ++t) c.unchanged("a table", table[t], given[t]);
    auto const again = c.matrix<Element>(4);
    run(0, c.rows, again.view());
    c.unchanged("y of a second run", again, y.values());
    if (probability > 0 && probability < 1) return;  // a row's number decides what is dropped
    c.same_bits("y", [&](int first, int count) {
      auto const some = view_of_nans<Element>(count, c.columns);
      run(first, count, some);
      return elements(some);
    });
  });
}

TEST_CASE_TEMPLATE("the first table alone is scaled", Element, double, float, bf16, fp16) {
  std::vector<double> const words{1, 0, 1}, places{0, 1, 2};
  auto const word = random_values<Element>(2 * 65, 1), position = random_values<Element>(3 * 65, 2);
  auto const w = view_of<int>(words, 3), p = view_of<int>(places, 3);
  auto const y = view_of_nans<Element>(3, 65);
  std::vector<double> expected(3 * 65, 0);
  add_rows(expected, word, words, 65, std::sqrt(65.0));
  embedding(Space(), view_of<Element>(word, 2, 65), w, y, {.scale = std::sqrt(65.0)});
  CHECK(deviation(download(y), expected) <= tolerance<Element>());
  add_rows(expected, position, places, 65);
  embedding(Space(), view_of<Element>(word, 2, 65), w, view_of<Element>(position, 3, 65), p, y,
            {.scale = std::sqrt(65.0)});
  CHECK(deviation(download(y), expected) <= tolerance<Element>());
}

TEST_CASE("the sum is dropped out: what is kept is scaled, and the state decides what is kept") {
  constexpr int rows = 200, columns = 1001;
  auto const table = view_of<double>(random_values(std::size_t(rows) * columns, 1, 1, 2), rows, columns);
  std::vector<double> places(rows);
  for (int r = 0; r < rows; ++r) places[r] = (r * 7) % rows;
  auto const indices = view_of<int>(places, rows);
  auto const sum = view_of_nans<double>(rows, columns), y = view_of_nans<double>(rows, columns);
  embedding(Space(), table, indices, table, indices, sum);
  auto const whole = download(sum);

  auto const embedded = [&](kfuse::EmbeddingOptions const& options) {
    embedding(Space(), table, indices, table, indices, y, options);
    return download(y);
  };
  auto const some = embedded({.dropout = 0.25, .random = {5, 3}});
  CHECK(deviation(some, dropped(whole, columns, 0.25, {5, 3}), 0) <= 1e-15);
  CHECK(embedded({.dropout = 0.25, .random = {5, 4}}) != some);
  CHECK(embedded({.dropout = 0, .random = {5, 3}}) == whole);
  CHECK(embedded({.dropout = 1, .random = {5, 3}}) == std::vector<double>(whole.size(), 0));

  Kokkos::View<kfuse::RandomState, Space> const state("state");  // as a replay finds it
  Kokkos::deep_copy(state, kfuse::RandomState{5, 3});
  CHECK(embedded({.dropout = 0.25, .random = state}) == some);
  CHECK(contains(error_of([&] { embedded({.dropout = 1.5}); }), "kfuse::embedding: dropout: the probability"));
}

TEST_CASE("an index outside the table stands for zeros, whatever the table holds, and is reported") {
  GuardedMatrix<float> const table(2, 8, std::vector<double>(16, 1)), y(5, 8);  // NaNs lie around the table
  Kokkos::View<int, Space> const status("status");
  auto const found = [&] { return DataFault(elements(status)[0]); };
  auto const inside = view_of<int>({0, 1, 1, 0, 1}, 5);
  embedding(Space(), table.const_view(), inside, y.view(), {.status = status});
  CHECK(found() == DataFault::none);

  auto const outside = [&](auto const& indices) {
    for (bool const second : {false, true}) {
      std::vector<double> expected(40, second);
      for (int c = 8; c < 16; ++c) expected[c] += 1;
      if (second)
        embedding(Space(), table.const_view(), inside, table.const_view(), indices, y.view(), {.status = status});
      else
        embedding(Space(), table.const_view(), indices, y.view(), {.status = status});
      CHECK(y.values() == expected);
      CHECK(y.guards_intact());
      CHECK(found() == DataFault::index);
      Kokkos::deep_copy(status, 0);
    }
  };
  outside(view_of<int>({-1, 1, 2, 2147483647, -2147483648.0}, 5));
  outside(view_of<std::int64_t>({-1, 1, 4294967296.0, 0x1p62, -0x1p63}, 5));            // cut to int, two are inside
  embedding(Space(), table.const_view(), view_of<int>({-1, 1, 2, 3, 4}, 5), y.view());  // nobody asks
  CHECK(found() == DataFault::none);
  kfuse::fuse(Space(), "test",
              kfuse::gather(table.const_view(), view_of<int>({0, 1, 1, 0, 2}, 5), status) | kfuse::store(y.view()));
  CHECK(found() == DataFault::index);
}

TEST_CASE("indices of 64 bits give the bits of those of 32") {
  std::vector<double> const words{3, 0, 6, 3, 2};
  auto const table = view_of<bf16>(random_values<bf16>(7 * 33, 1), 7, 33);
  auto const y = view_of_nans<bf16>(5, 33), z = view_of_nans<bf16>(5, 33);
  embedding(Space(), table, view_of<int>(words, 5), table, view_of<std::int64_t>(words, 5), y);
  embedding(Space(), table, view_of<std::int64_t>(words, 5), table, view_of<int>(words, 5), z);
  CHECK(same_bits(y, z));
  CHECK_FALSE(std::isnan(download(y)[0]));
}

TEST_CASE("embedding of nothing writes nothing") {
  embedding(Space(), view_of_nans<float>(3, 8), view_of<int>({}, 0), view_of_nans<float>(0, 8));
}

TEST_CASE("embedding refuses what does not fit, and a table that it would overwrite") {
  auto const table = view_of<float>(random_values<float>(12, 1), 3, 4),
             wide = view_of<float>(random_values<float>(15, 1), 3, 5);
  auto const indices = view_of<int>({2, 1, 0}, 3), two = view_of<int>({0, 1}, 2);
  auto const y = view_of_nans<float>(3, 4);
  CHECK(contains(error_of([&] { embedding(Space(), table, two, y); }), "kfuse::embedding: y: shape [3, 4]"));
  CHECK(contains(error_of([&] { embedding(Space(), table, indices, wide, indices, y); }),
                 "kfuse::embedding: second: has 5 columns"));
  CHECK(contains(error_of([&] { embedding(Space(), table, indices, table, two, y); }),
                 "kfuse::embedding: second_indices: has 2 entries"));
  CHECK(contains(error_of([&] { embedding(Space(), table, indices, table); }), "kfuse::embedding: y: overlaps table"));
  CHECK(contains(error_of([&] { embedding(Space(), view_of_nans<float>(0, 4), indices, y); }), "no entries"));
  for (void* const memory : {static_cast<void*>(y.data() + 11), static_cast<void*>(indices.data() + 1)}) {
    Kokkos::View<int, Space, Kokkos::MemoryUnmanaged> const status(static_cast<int*>(memory));
    CHECK(contains(error_of([&] { embedding(Space(), table, indices, y, {.status = status}); }),
                   "kfuse::embedding: status: lies in "));
  }
  CHECK(contains(error_of([&] { embedding(Space(), table, indices, y, {.scale = NAN}); }), "embedding: scale is nan"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("embedding moves the rows that are looked up, not the tables") {
  kfuse::Tensor<bf16, 2> const table{nullptr, {50000, 64}, {64, 1}}, y{nullptr, {10, 64}, {64, 1}};
  kfuse::Tensor<int, 1> const indices{nullptr, {10}, {1}};
  CHECK(kfuse::embedding_traffic(Space(), table, indices, y).bytes() == 2 * 10 * 64 * 2 + 10 * 4);
  CHECK(kfuse::embedding_traffic(Space(), table, indices, table, indices, y).bytes() == 3 * 10 * 64 * 2 + 2 * 10 * 4);
}

}  // namespace
