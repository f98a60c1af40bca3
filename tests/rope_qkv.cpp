// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/rope_qkv.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "random_cases.hpp"
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

// The definition, by heads: pairs (i, i + rotary / 2) or (2i, 2i + 1) are turned by position * base^(-2i / rotary),
// whose cosines and sines are in the position's row of the table.
std::vector<double> rotated(std::vector<double> head, std::vector<double> const& table, int position, Sizes const& s) {
  auto const x = head;
  for (int i = 0; i < s.rotary / 2; ++i) {
    int const a = s.pairs == RopePairs::half ? i : 2 * i, b = s.pairs == RopePairs::half ? i + s.rotary / 2 : 2 * i + 1;
    double const* const angle = table.data() + std::ptrdiff_t(position) * s.rotary + i;
    double const cosine = angle[0], sine = angle[s.rotary / 2];
    head[a] = x[a] * cosine - x[b] * sine;
    head[b] = x[b] * cosine + x[a] * sine;
  }
  return head;
}

struct Expected {
  std::vector<double> q, k, v;  // NaN where a cache is not written
};
Expected reference(std::vector<double> const& qkv, std::vector<double> const& positions,
                   std::vector<double> const& angles, Sizes const& s) {
  Expected e{{}, std::vector<double>(s.cache_size(), NAN), std::vector<double>(s.cache_size(), NAN)};
  for (int row = 0; row < s.rows(); ++row)
    for (int h = 0; h < s.heads + 2 * s.kv_heads; ++h) {
      auto const first = qkv.begin() + std::size_t(row) * s.columns() + h * s.head_dim;
      std::vector<double> head(first, first + s.head_dim);
      int const position = int(positions[row]), kv = (h - s.heads) % s.kv_heads;
      if (h < s.heads + s.kv_heads) head = rotated(head, angles, position, s);
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
      auto const angles = angle_table(32, s.rotary);
      auto const table = view_of<Angle>(angles, 32, s.rotary);
      GuardedMatrix<Element> const qkv(s.rows(), s.columns(), x, place), q(s.rows(), s.heads * s.head_dim, place);
      auto const k = view_of_nans<Element>(s.batch, s.kv_heads, s.capacity, s.head_dim);
      auto const v = view_of_nans<Element>(s.batch, s.kv_heads, s.capacity, s.head_dim);

      rope_qkv(space, qkv.const_view(), table, view_of<int>(positions, s.rows()), q.view(), k, v,
               {.rotary_dim = s.rotary, .pairs = s.pairs});
      auto const expected = reference(x, positions, angles, s);
      CHECK(deviation(q.values(), expected.q, 0.1) <= tolerance<Element>());
      CHECK(deviation(download(k), expected.k, 0.1) <= tolerance<Element>());
      CHECK(deviation(download(v), expected.v) == 0);
      CHECK(q.guards_intact());
      CHECK(qkv.values() == x);
    }
}

// What a row of random values becomes: its place in the cache is a row of the cache's memory.
Expected random_reference(std::vector<double> const& qkv, std::vector<double> const& positions,
                          std::vector<double> const& angles, Sizes const& s) {
  int const kv_columns = s.kv_heads * s.head_dim;
  std::vector<double> const unwritten(std::size_t(s.batch) * s.capacity * kv_columns, NAN);
  Expected e{{}, unwritten, unwritten};
  for (int row = 0; row < s.rows(); ++row)
    for (int h = 0; h < s.heads + 2 * s.kv_heads; ++h) {
      auto const first = qkv.begin() + std::ptrdiff_t(row) * s.columns() + h * s.head_dim;
      std::vector<double> head(first, first + s.head_dim);
      int const position = int(positions[row]);
      if (h < s.heads + s.kv_heads) {
        if (position >= 0)
          head = rotated(head, angles, position, s);
        else
          std::fill_n(head.begin(), s.rotary, NAN);
      }
      if (h < s.heads) {
        e.q.insert(e.q.end(), head.begin(), head.end());
      } else if (position >= 0 && position < s.capacity) {
        auto& to = h < s.heads + s.kv_heads ? e.k : e.v;
        auto const place = (std::ptrdiff_t(row / s.tokens) * s.capacity + position) * kv_columns;
        std::copy(head.begin(), head.end(), to.begin() + place + (h - s.heads) % s.kv_heads * s.head_dim);
      }
    }
  return e;
}
Sizes random_sizes(RandomCase const& c, Random& random) {
  int const columns = std::max(6, c.columns), head_dim = std::min(columns / 3, 2 + random.below(129));
  int const all_heads = columns / head_dim, kv_heads = 1 + random.below((all_heads - 1) / 2);
  int const rotary = random.below(2) == 0 ? head_dim / 2 * 2 : 2 * (1 + random.below(head_dim / 2));
  int const batch = random.below(3) == 0 ? c.rows : 1, tokens = c.rows / batch;
  auto const pairs = random.below(2) == 0 ? RopePairs::half : RopePairs::interleaved;
  return {batch, tokens, all_heads - 2 * kv_heads, kv_heads, head_dim, rotary, tokens + 1, pairs};
}

// Some positions are before the table, some beyond the cache. Heads of the cache lie side by side.
TEST_CASE("rope_qkv is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("rope_qkv", {}, [&]<class Element>(RandomCase& c) {
    using Angle = std::conditional_t<std::is_same_v<Element, double>, double, float>;
    Random random(c.seed);
    Sizes const s = random_sizes(c, random);
    auto const x = c.values<Element>(0, std::size_t(s.rows()) * s.columns());
    std::vector<double> positions(s.rows()), scales(s.rows(), 0), cached(std::size_t(s.batch) * s.capacity, 0);
    int const first_position = random.below(3);
    for (int row = 0; row < s.rows(); ++row) {
      positions[row] = random.below(100) == 0 ? -1 : first_position + row % s.tokens;
      for (int i = 0; i < s.columns(); ++i)
        if (double const v = std::abs(x[std::size_t(row) * s.columns() + i]); std::isfinite(v))
          scales[row] = std::max(scales[row], v);
      if (positions[row] >= 0 && positions[row] < s.capacity)
        cached[std::size_t(row / s.tokens) * s.capacity + std::size_t(positions[row])] = scales[row];
    }
    auto const angles = angle_table(s.capacity + 1, s.rotary);
    auto const table = view_of<Angle>(angles, s.capacity + 1, s.rotary);
    auto const at = view_of<int>(positions, s.rows());
    GuardedMatrix<Element> const qkv(s.rows(), s.columns(), x, c.place(0)),
        q(s.rows(), s.heads * s.head_dim, c.place(1)), k(s.batch * s.capacity, s.kv_heads * s.head_dim, c.place(2)),
        v(k.rows(), k.columns(), c.place(3));
    auto const cache = [&](auto const& memory) {
      auto const rows = memory.view();
      std::ptrdiff_t const stride = std::ptrdiff_t(rows.stride(0));
      return kfuse::Tensor<Element, 4>{
          rows.data(), {s.batch, s.kv_heads, s.capacity, s.head_dim}, {s.capacity * stride, s.head_dim, stride, 1}};
    };
    kfuse::RopeQkvOptions const options{.rotary_dim = s.rotary, .pairs = s.pairs};
    rope_qkv(space, qkv.const_view(), table, at, q.view(), cache(k), cache(v), options);
    auto const expected = random_reference(x, positions, angles, s);
    c.compare("q", q, expected.q, scales);
    c.compare("k", k, expected.k, cached);
    c.compare("v", v, expected.v);
    c.unchanged("qkv", qkv, x);
    c.same_bits("q", [&](int first, int count) {
      auto const y = view_of_nans<Element>(count, s.heads * s.head_dim);
      auto const nowhere = view_of_nans<Element>(count, s.kv_heads, 0, s.head_dim);
      rope_qkv(space, rows_of(qkv, first, count), table, Kokkos::subview(at, Kokkos::pair(first, first + count)), y,
               nowhere, nowhere, options);
      return elements(y);
    });
  });
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
  CHECK(contains(error_of([&] { rope_qkv(Space(), x, table, at, q, k, shorter); }), "v_cache: shape [1, 1, 3, 8]"));
  CHECK(contains(error_of([&] { rope_qkv(Space(), x, table, at, q, three, others); }), "[batch, tokens]"));
  CHECK(contains(error_of([&] { rope_qkv(Space(), x, table, at, q, k, k); }),
                 "kfuse::rope_qkv: v_cache: overlaps k_cache"));
  auto const own_q = Kokkos::subview(x, Kokkos::ALL, Kokkos::pair(0, 8));
  CHECK(contains(error_of([&] { rope_qkv(Space(), x, table, at, own_q, k, v); }), "kfuse::rope_qkv: q: overlaps qkv"));
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
