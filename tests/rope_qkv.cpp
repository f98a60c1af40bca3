// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/rope_qkv.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::fp16;
using kfuse::rope_qkv;
using kfuse::RopePairs;
using namespace kfuse::test;

// Row p: cos(p base^(-2i / rotary)) for all pairs i, and then the sines.
std::vector<double> angle_table(int positions, int rotary, double base = 1e4) {
  std::vector<double> table(std::size_t(positions) * rotary);
  for (int p = 0; p < positions; ++p)
    for (int i = 0; i < rotary / 2; ++i) {
      double const angle = p * std::pow(base, -2.0 * i / rotary);
      table[std::size_t(p) * rotary + i] = std::cos(angle);
      table[std::size_t(p) * rotary + rotary / 2 + i] = std::sin(angle);
    }
  return table;
}

struct Sizes {
  int batch, tokens, heads, kv_heads, head_dim, rotary, capacity;
  RopePairs pairs;
  int rows() const { return batch * tokens; }
  int columns() const { return (heads + 2 * kv_heads) * head_dim; }
  int cache_size() const { return batch * kv_heads * capacity * head_dim; }
};

// The definition, by heads: pairs (i, i + rotary / 2) or (2i, 2i + 1) are turned by position * base^(-2i / rotary).
std::vector<double> rotated(std::vector<double> head, int position, Sizes const& s) {
  auto const x = head;
  for (int i = 0; i < s.rotary / 2; ++i) {
    int const a = s.pairs == RopePairs::half ? i : 2 * i, b = s.pairs == RopePairs::half ? i + s.rotary / 2 : 2 * i + 1;
    double const angle = position * std::pow(1e4, -2.0 * i / s.rotary);
    head[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
    head[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
  }
  return head;
}

struct Expected {
  std::vector<double> q, k, v;  // NaN where a cache is not written
};
Expected reference(std::vector<double> const& qkv, std::vector<double> const& positions, Sizes const& s) {
  Expected e{{}, std::vector<double>(s.cache_size(), NAN), std::vector<double>(s.cache_size(), NAN)};
  for (int row = 0; row < s.rows(); ++row)
    for (int h = 0; h < s.heads + 2 * s.kv_heads; ++h) {
      auto const first = qkv.begin() + std::size_t(row) * s.columns() + h * s.head_dim;
      std::vector<double> head(first, first + s.head_dim);
      int const position = int(positions[row]), kv = (h - s.heads) % s.kv_heads;
      if (h < s.heads + s.kv_heads) head = rotated(head, position, s);
      if (h < s.heads) {
        e.q.insert(e.q.end(), head.begin(), head.end());
      } else {
        auto& cache = h < s.heads + s.kv_heads ? e.k : e.v;
        std::size_t const place = (std::size_t(row / s.tokens * s.kv_heads + kv) * s.capacity + position) * s.head_dim;
        std::copy(head.begin(), head.end(), cache.begin() + place);
      }
    }
  return e;
}

TEST_CASE_TEMPLATE("rope_qkv agrees with its definition in double", Element, double, float, bf16, fp16) {
  using Angle = std::conditional_t<std::is_same_v<Element, double>, double, float>;
  Space const space = another_instance();
  for (Sizes const s :
       {Sizes{2, 3, 4, 2, 64, 64, 9, RopePairs::half}, Sizes{1, 5, 6, 1, 128, 64, 8, RopePairs::half},
        Sizes{2, 1, 2, 2, 40, 40, 20, RopePairs::half}, Sizes{1, 4, 3, 3, 8, 4, 7, RopePairs::half},
        Sizes{1, 4, 3, 1, 64, 32, 6, RopePairs::interleaved}, Sizes{2, 2, 3, 1, 7, 4, 9, RopePairs::interleaved}})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 3}}) {
      CAPTURE(s.head_dim);
      CAPTURE(place.shift);
      auto const x = random_values<Element>(std::size_t(s.rows()) * s.columns(), s.head_dim);
      std::vector<double> positions(s.rows());
      for (int row = 0; row < s.rows(); ++row) positions[row] = (row % s.tokens) + 1 + row / s.tokens;
      auto const table = view_of<Angle>(angle_table(32, s.rotary), 32, s.rotary);
      GuardedMatrix<Element> const qkv(s.rows(), s.columns(), x, place), q(s.rows(), s.heads * s.head_dim, place);
      auto const k = view_of_nans<Element>(s.batch, s.kv_heads, s.capacity, s.head_dim);
      auto const v = view_of_nans<Element>(s.batch, s.kv_heads, s.capacity, s.head_dim);

      rope_qkv(space, qkv.const_view(), table, view_of<int>(positions, s.rows()), q.view(), k, v,
               {.rotary_dim = s.rotary, .pairs = s.pairs});
      auto const expected = reference(x, positions, s);
      CHECK(deviation(q.values(), expected.q, 0.1) <= tolerance<Element>());
      CHECK(deviation(download(k), expected.k, 0.1) <= tolerance<Element>());
      CHECK(deviation(download(v), expected.v) == 0);
      CHECK(q.guards_intact());
      CHECK(qkv.values() == x);
    }
}

// One head of float values at one position: what it becomes as Q, which must be what it becomes as K.
std::vector<double> one_head(std::vector<double> const& x, int position, int rotary, RopePairs pairs) {
  int const n = int(x.size());
  std::vector<double> row;
  for (int part = 0; part < 3; ++part) row.insert(row.end(), x.begin(), x.end());
  auto const q = view_of_nans<float>(1, n);
  auto const k = view_of_nans<float>(1, 1, position + 1, n), v = view_of_nans<float>(1, 1, position + 1, n);
  rope_qkv(Space(), view_of<float>(row, 1, 3 * n),
           view_of<float>(angle_table(position + 1, rotary), position + 1, rotary), view_of<int>({double(position)}, 1),
           q, k, v, {.rotary_dim = rotary, .pairs = pairs});
  auto const y = download(q), keys = download(k);
  CHECK(std::equal(y.begin(), y.end(), keys.end() - n));
  return y;
}

// CASES P18
TEST_CASE("both kinds of pairs, and a rotary part of the head") {
  std::vector<double> const x8{1, 2, 3, 4, 5, 6, 7, 8}, x4{1, 2, 3, 4};
  auto const half = one_head(x8, 1, 4, RopePairs::half), interleaved = one_head(x8, 1, 4, RopePairs::interleaved);
  CHECK(deviation(half, {-1.9841106, 1.9599007, 2.4623779, 4.0197997, 5, 6, 7, 8}) <= 1e-6);
  CHECK(deviation(interleaved, {-1.1426397, 1.9220756, 2.9598507, 4.0297995, 5, 6, 7, 8}) <= 1e-6);
  CHECK(std::equal(half.begin() + 4, half.end(), x8.begin() + 4));
  CHECK(std::equal(interleaved.begin() + 4, interleaved.end(), x8.begin() + 4));
  CHECK(deviation(one_head(x4, 3, 4, RopePairs::half), {-1.4133525, 1.8791181, -2.8288575, 4.0581911}) <= 1e-6);
  CHECK(deviation(one_head(x4, 3, 4, RopePairs::interleaved), {-1.2722325, -1.8388650, 2.8786681, 4.0881866}) <= 1e-6);
  auto const any = random_values<float>(128, 1);
  CHECK(one_head(any, 0, 128, RopePairs::half) == any);
  CHECK(one_head(any, 0, 128, RopePairs::interleaved) == any);
}

// CASES P17
TEST_CASE("the angle of a far position is exact") {
  auto const turned = [](int rotary, int pair, int position) {
    std::vector<double> x(rotary, 0);
    x[pair] = 1;
    auto const y = one_head(x, position, rotary, RopePairs::half);
    return std::vector<double>{y[pair], y[pair + rotary / 2]};
  };
  CHECK(deviation(turned(32, 1, 1857), {0.306692810, 0.951808552}, 1) <= 1e-6);
  CHECK(deviation(turned(128, 0, 15962), {-0.908015901, 0.418935703}, 1) <= 1e-6);
  CHECK(deviation(turned(128, 1, 15962), {0.884606723, -0.466337802}, 1) <= 1e-6);
  CHECK(turned(32, 0, 256) != turned(32, 0, 257));
}

TEST_CASE(
    "a position outside the cache stores nothing there, one outside the table rotates to NaN; both are reported") {
  std::vector<double> const row(24, 1);
  auto const x = view_of<float>(row, 1, 24);
  auto const table = view_of<float>(angle_table(8, 8), 8, 8);
  Kokkos::View<int, Space> const status("status");
  for (int const position : {-1, 0, 3, 4, 7, 8, 2147483647}) {
    auto const q = view_of_nans<float>(1, 8);
    auto const k = view_of_nans<float>(1, 1, 4, 8), v = view_of_nans<float>(1, 1, 4, 8);
    Kokkos::deep_copy(status, 0);
    rope_qkv(Space(), x, table, view_of<int>({double(position)}, 1), q, k, v, {.status = status});
    CAPTURE(position);
    bool const cached = position >= 0 && position < 4, known = position >= 0 && position < 8;
    for (auto const& cache : {download(k), download(v)})
      for (int i = 0; i < 32; ++i) CHECK(std::isnan(cache[i]) == !(cached && i / 8 == position));
    for (double const value : download(q)) CHECK(std::isnan(value) == !known);
    CHECK(kfuse::DataFault(int(download(status)[0])) == (cached ? kfuse::DataFault::none : kfuse::DataFault::position));
  }
}

// CASES P09
TEST_CASE("rope_qkv of no rows writes nothing") {
  auto const table = view_of<float>(angle_table(4, 8), 4, 8);
  for (int const batch : {0, 2}) {
    auto const cache = view_of_nans<float>(batch, 1, 4, 8), other = view_of_nans<float>(batch, 1, 4, 8);
    rope_qkv(Space(), view_of_nans<float>(0, 24), table, view_of<int>({}, 0), view_of_nans<float>(0, 8), cache, other);
    for (double const value : download(cache)) CHECK(std::isnan(value));
  }
}

TEST_CASE("rope_qkv refuses what does not fit, and writes nothing") {
  auto const x = view_of<float>(random_values<float>(2 * 24, 1), 2, 24);
  auto const table = view_of<float>(angle_table(4, 8), 4, 8), table3 = view_of_nans<float>(4, 3),
             table10 = view_of_nans<float>(4, 10);
  auto const at = view_of<int>({0, 1}, 2), few = view_of<int>({0}, 1);
  auto const q = view_of_nans<float>(2, 8), wide_q = view_of_nans<float>(2, 16);
  auto const k = view_of_nans<float>(1, 1, 4, 8), v = view_of_nans<float>(1, 1, 4, 8),
             shorter = view_of_nans<float>(1, 1, 3, 8);
  auto const three = view_of_nans<float>(3, 1, 4, 8), others = view_of_nans<float>(3, 1, 4, 8);
  CHECK(contains(error_of([&] { rope_qkv(Space(), x, table3, at, q, k, v, {.rotary_dim = 3}); }), "rotary_dim"));
  CHECK(contains(error_of([&] { rope_qkv(Space(), x, table10, at, q, k, v, {.rotary_dim = 10}); }), "rotary_dim"));
  CHECK(contains(error_of([&] { rope_qkv(Space(), x, table, at, q, k, v, {.rotary_dim = 4}); }), "table"));
  CHECK(contains(error_of([&] { rope_qkv(Space(), x, table, few, q, k, v); }), "one position for each row"));
  CHECK(contains(error_of([&] { rope_qkv(Space(), x, table, at, wide_q, k, v); }), "[ Q | K | V ]"));
  CHECK(contains(error_of([&] { rope_qkv(Space(), x, table, at, q, k, shorter); }), "same shape"));
  CHECK(contains(error_of([&] { rope_qkv(Space(), x, table, at, q, three, others); }), "[batch, tokens]"));
  CHECK(contains(error_of([&] { rope_qkv(Space(), x, table, at, q, k, k); }), "two outputs overlap"));
  auto const own_q = Kokkos::subview(x, Kokkos::ALL, Kokkos::pair(0, 8));
  CHECK(contains(error_of([&] { rope_qkv(Space(), x, table, at, own_q, k, v); }), "an output overlaps an input"));
  for (double const value : download(q)) CHECK(std::isnan(value));
  for (double const value : download(k)) CHECK(std::isnan(value));
}

TEST_CASE("rope_qkv moves the rows, their angles and the places in the cache, not the whole cache") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {6, 256}, {256, 1}}, q{nullptr, {6, 128}, {128, 1}};
  kfuse::Tensor<float, 2> const table{nullptr, {1000, 64}, {64, 1}};
  kfuse::Tensor<int, 1> const at{nullptr, {6}, {1}};
  kfuse::Tensor<bf16, 4> const cache{nullptr, {2, 1, 500, 64}, {32000, 32000, 64, 1}};
  auto const traffic = kfuse::rope_qkv_traffic(Space(), x, table, at, q, cache, cache);
  CHECK(traffic.bytes_written == 6 * 256 * 2);
  CHECK(traffic.bytes_read == 6 * 256 * 2 + 6 * 64 * 4 + 3 * 6 * 4);
}

}  // namespace
