// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/embedding.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::embedding;
using kfuse::fp16;
using namespace kfuse::test;

// The definition: one row of the table for each index, zeros for an index outside it; added to y.
void add_rows(std::vector<double>& y, std::vector<double> const& table, std::vector<double> const& indices,
              int columns) {
  int const entries = int(table.size()) / columns;
  for (std::size_t r = 0; r < indices.size(); ++r)
    for (int c = 0; c < columns; ++c)
      if (indices[r] >= 0 && indices[r] < entries) y[r * columns + c] += table[std::size_t(indices[r]) * columns + c];
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

TEST_CASE("an index outside the table stands for zeros and reads nothing") {
  GuardedMatrix<float> const table(2, 8, std::vector<double>(16, 1)), y(5, 8);  // NaNs lie around the table
  embedding(Space(), table.const_view(), view_of<int>({-1, 1, 2, 2147483647, -2147483648.0}, 5), y.view());
  std::vector<double> expected(40, 0);
  std::fill_n(expected.begin() + 8, 8, 1);
  CHECK(y.values() == expected);
}

TEST_CASE("embedding of nothing writes nothing") {
  embedding(Space(), view_of_nans<float>(3, 8), view_of<int>({}, 0), view_of_nans<float>(0, 8));
}

TEST_CASE("embedding refuses what does not fit, and a table that it would overwrite") {
  auto const table = view_of<float>(random_values<float>(12, 1), 3, 4),
             wide = view_of<float>(random_values<float>(15, 1), 3, 5);
  auto const indices = view_of<int>({2, 1, 0}, 3), two = view_of<int>({0, 1}, 2);
  auto const y = view_of_nans<float>(3, 4);
  CHECK(contains(error_of([&] { embedding(Space(), table, two, y); }), "kfuse::embedding: store: shape [3, 4]"));
  CHECK(contains(error_of([&] { embedding(Space(), table, indices, wide, indices, y); }), "kfuse::embedding: gather"));
  CHECK(contains(error_of([&] { embedding(Space(), table, indices, table, two, y); }), "kfuse::embedding: gather"));
  CHECK(contains(error_of([&] { embedding(Space(), table, indices, table); }), "an output overlaps an input"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("embedding moves the rows that are looked up, not the tables") {
  kfuse::Tensor<bf16, 2> const table{nullptr, {50000, 64}, {64, 1}}, y{nullptr, {10, 64}, {64, 1}};
  kfuse::Tensor<int, 1> const indices{nullptr, {10}, {1}};
  CHECK(kfuse::embedding_traffic(Space(), table, indices, y).bytes() == 2 * 10 * 64 * 2 + 10 * 4);
  CHECK(kfuse::embedding_traffic(Space(), table, indices, table, indices, y).bytes() == 3 * 10 * 64 * 2 + 2 * 10 * 4);
}

}  // namespace
