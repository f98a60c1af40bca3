// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/rope.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::DataFault;
using kfuse::fp16;
using kfuse::rope;
using kfuse::RopePairs;
using kfuse::Tensor;
using namespace kfuse::test;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

// Row p: cos(p base^(-2i / rotary)) for all pairs i, and then the sines; rounded to Element.
template <class Element>
std::vector<double> angle_table(int positions, int rotary, double base = 1e4) {
  std::vector<double> table(std::size_t(positions) * rotary);
  for (int p = 0; p < positions; ++p)
    for (int i = 0; i < rotary / 2; ++i) {
      double const angle = p * std::pow(base, -2.0 * i / rotary);
      table[std::size_t(p) * rotary + i] = rounded<Element>(std::cos(angle));
      table[std::size_t(p) * rotary + rotary / 2 + i] = rounded<Element>(std::sin(angle));
    }
  return table;
}

struct Heads {
  int tokens, heads, head_dim, rotary;
  RopePairs pairs;
  int columns() const { return heads * head_dim; }
};

// The definition: pairs (i, i + rotary / 2) or (2i, 2i + 1) of each head are turned by the angles of a row of the
// table, and become NaN where there is no such row.
std::vector<double> reference(std::vector<double> const& x, std::vector<double> const& table,
                              std::vector<double> const& positions, Heads const& s) {
  auto y = x;
  int const rows = int(table.size()) / s.rotary;
  for (int t = 0; t < s.tokens; ++t)
    for (int h = 0; h < s.heads; ++h)
      for (int i = 0; i < s.rotary / 2; ++i) {
        std::size_t const head = (std::size_t(t) * s.heads + h) * s.head_dim;
        bool const half = s.pairs == RopePairs::half;
        std::size_t const a = head + (half ? i : 2 * i), b = head + (half ? i + s.rotary / 2 : 2 * i + 1);
        bool const known = positions[t] >= 0 && positions[t] < rows;
        double const* const row = &table[known ? std::size_t(positions[t]) * s.rotary : 0];
        long double const cosine = known ? row[i] : nan_value, sine = known ? row[s.rotary / 2 + i] : nan_value;
        y[a] = double(x[a] * cosine - x[b] * sine);
        y[b] = double(x[b] * cosine + x[a] * sine);
      }
  return y;
}

// Heads of a matrix of rows, from a column on.
template <class View>
auto heads_of(View const& rows, Heads const& s, int first = 0) {
  return Tensor<typename View::value_type, 3>{
      rows.data() + first, {int(rows.extent(0)), s.heads, s.head_dim}, {std::ptrdiff_t(rows.stride(0)), s.head_dim, 1}};
}

template <class Element>
using Angle = std::conditional_t<std::is_same_v<Element, double>, double, float>;

TEST_CASE_TEMPLATE("rope agrees with its definition in double, in place and out", Element, double, float, bf16, fp16) {
  Space const space = another_instance();
  constexpr auto half = RopePairs::half, interleaved = RopePairs::interleaved;
  for (Heads const q : {Heads{3, 4, 64, 64, half}, Heads{5, 6, 128, 64, half}, Heads{2, 2, 40, 40, interleaved},
                        Heads{4, 3, 8, 4, half}, Heads{4, 3, 64, 32, interleaved}, Heads{2, 3, 7, 4, interleaved},
                        Heads{2, 3, 7, 6, half}, Heads{1, 1, 2, 2, half}, Heads{70, 32, 128, 128, half}})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 3}}) {
      CAPTURE(q.head_dim);
      CAPTURE(place.shift);
      Heads k = q;
      k.heads = (q.heads + 1) / 2;
      auto const x = random_values<Element>(std::size_t(q.tokens) * q.columns(), 1);
      auto const z = random_values<Element>(std::size_t(k.tokens) * k.columns(), 2);
      std::vector<double> positions(q.tokens);
      for (int t = 0; t < q.tokens; ++t) positions[t] = (7 * t + 1) % 32;
      auto const angles = angle_table<Angle<Element>>(32, q.rotary);
      auto const table = view_of<Angle<Element>>(angles, 32, q.rotary);
      auto const at = view_of<int>(positions, q.tokens);
      kfuse::RopeHeadsOptions const options{.rotary_dim = q.rotary, .pairs = q.pairs};
      GuardedMatrix<Element> const queries(q.tokens, q.columns(), x, place), keys(k.tokens, k.columns(), z, place);
      GuardedMatrix<Element> const q_out(q.tokens, q.columns(), place), k_out(k.tokens, k.columns(), place);

      rope(space, heads_of(queries.const_view(), q), heads_of(keys.const_view(), k), table, at,
           heads_of(q_out.view(), q), heads_of(k_out.view(), k), options);
      CHECK(deviation(q_out.values(), reference(x, angles, positions, q), 0.1) <= tolerance<Element>());
      CHECK(deviation(k_out.values(), reference(z, angles, positions, k), 0.1) <= tolerance<Element>());
      CHECK(queries.values() == x);
      CHECK(keys.values() == z);

      rope(space, heads_of(queries.view(), q), heads_of(keys.view(), k), table, at, options);
      CHECK(queries.values() == q_out.values());
      CHECK(keys.values() == k_out.values());
      for (auto const& m : {queries, keys, q_out, k_out}) CHECK(m.guards_intact());
    }
}

// Heads of 1 to 130 columns in rows of any width; q in place or out, k always out.
TEST_CASE("rope is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("rope", {.widest = 4096}, [&]<class Element>(RandomCase& c) {
    Random random(c.seed);
    int const head_dim = std::min(std::max(2, c.columns), 2 + random.below(129)), wide = 1 + random.below(head_dim / 2);
    Heads const q{c.rows, std::max(1, c.columns / head_dim), head_dim,
                  random.below(2) == 0 ? head_dim / 2 * 2 : 2 * wide,
                  random.below(2) == 0 ? RopePairs::half : RopePairs::interleaved};
    Heads k = q;
    k.heads = random.below(3);
    auto const x = c.values<Element>(0, std::size_t(q.tokens) * q.columns());
    auto const z = c.values<Element>(1, std::size_t(k.tokens) * k.columns());
    std::vector<double> positions(c.rows);
    for (double& p : positions) p = random.below(100) == 0 ? -1 : random.below(20);  // some outside of both ends
    auto const angles = angle_table<Angle<Element>>(19, q.rotary);
    auto const table = view_of<Angle<Element>>(angles, 19, q.rotary);
    auto const at = view_of<int>(positions, c.rows);
    Kokkos::View<int, Space> const status("status");
    bool const says_all = q.rotary == head_dim && c.number % 2 == 0;
    kfuse::RopeHeadsOptions const options{.rotary_dim = says_all ? 0 : q.rotary, .pairs = q.pairs, .status = status};
    GuardedMatrix<Element> const queries(q.tokens, q.columns(), x, c.place(0)),
        keys(k.tokens, k.columns(), z, c.place(1));
    GuardedMatrix<Element> const elsewhere(q.tokens, q.columns(), c.place(2)), k_out(k.tokens, k.columns(), c.place(3));

    // What cancels is as large as the values of the row.
    auto const scales = [&](std::vector<double> const& values) {
      std::vector<double> largest(c.rows, 0);
      for (std::size_t i = 0; i < values.size(); ++i)
        if (std::isfinite(values[i]))
          largest[i / (values.size() / c.rows)] = std::max(largest[i / (values.size() / c.rows)], std::abs(values[i]));
      return largest;
    };
    bool const in_place = random.below(2) == 0;
    auto const& q_out = in_place ? queries : elsewhere;
    rope(space, heads_of(queries.view(), q), heads_of(keys.view(), k), table, at, heads_of(q_out.view(), q),
         heads_of(k_out.view(), k), options);
    c.compare("q", q_out, reference(x, angles, positions, q), scales(x));
    if (k.heads > 0) c.compare("k", k_out, reference(z, angles, positions, k), scales(z));
    c.unchanged("k", keys, z);
    bool const outside = std::any_of(positions.begin(), positions.end(), [](double p) { return p < 0 || p >= 19; });
    c.expect(elements(status)[0] == int(outside ? DataFault::position : DataFault::none), "status");
    if (in_place) return;
    c.unchanged("q", queries, x);
    c.same_bits("q", [&](int first, int count) {
      auto const y = view_of_nans<Element>(count, q.columns());
      auto const none = Tensor<Element, 3>{nullptr, {count, 0, head_dim}, {0, head_dim, 1}};
      rope(space, heads_of(rows_of(queries, first, count), q), none, table,
           Kokkos::subview(at, Kokkos::pair(first, first + count)), heads_of(y, q), none, options);
      return elements(y);
    });
  });
}

// One head of float values at one position, as Q in place and as K out of place, which must agree.
std::vector<double> one_head(std::vector<double> const& x, int position, int rotary, RopePairs pairs) {
  int const n = int(x.size());
  auto const q = view_of<float>(x, 1, 1, n), k = view_of<float>(x, 1, 1, n), k_out = view_of_nans<float>(1, 1, n);
  int const width = rotary == 0 ? n : rotary;
  auto const table = view_of<float>(angle_table<float>(position + 1, width), position + 1, width);
  auto const at = view_of<int>({double(position)}, 1);
  rope(Space(), q, k, table, at, q, k_out, {.rotary_dim = rotary, .pairs = pairs});
  CHECK(download(q) == download(k_out));
  rope(Space(), k, k_out, table, at, {.rotary_dim = rotary, .pairs = pairs});
  CHECK(download(q) == download(k));
  return download(q);
}

// CASES P18
TEST_CASE("both kinds of pairs, and a rotary part of the head") {
  std::vector<double> const x8{1, 2, 3, 4, 5, 6, 7, 8}, x4{1, 2, 3, 4};
  CHECK(deviation(one_head(x8, 1, 4, RopePairs::half), {-1.9841106, 1.9599007, 2.4623779, 4.0197997, 5, 6, 7, 8}) <=
        1e-6);
  CHECK(deviation(one_head(x8, 1, 4, RopePairs::interleaved),
                  {-1.1426397, 1.9220756, 2.9598507, 4.0297995, 5, 6, 7, 8}) <= 1e-6);
  CHECK(deviation(one_head(x4, 3, 4, RopePairs::half), {-1.4133525, 1.8791181, -2.8288575, 4.0581911}) <= 1e-6);
  CHECK(deviation(one_head(x4, 3, 4, RopePairs::interleaved), {-1.2722325, -1.8388650, 2.8786681, 4.0881866}) <= 1e-6);
  auto const any = random_values<float>(128, 1);
  CHECK(one_head(any, 0, 128, RopePairs::half) == any);
  CHECK(one_head(any, 0, 128, RopePairs::interleaved) == any);
}
TEST_CASE("a rotary_dim of 0 stands for the whole head") {
  std::vector<double> const x{1, 2, 3, 4};
  CHECK(deviation(one_head(x, 3, 0, RopePairs::half), {-1.4133525, 1.8791181, -2.8288575, 4.0581911}) <= 1e-6);
  CHECK(deviation(one_head(x, 3, 0, RopePairs::interleaved), {-1.2722325, -1.8388650, 2.8786681, 4.0881866}) <= 1e-6);
}

// CASES P17
TEST_CASE("neighbouring positions that bf16 does not tell apart are rotated by angles of their own") {
  auto const turned = [](int position) {
    auto const q = view_of<bf16>({1, 0}, 1, 1, 2), k = view_of<bf16>({1, 0}, 1, 1, 2);
    rope(Space(), q, k, view_of<float>(angle_table<float>(300, 2), 300, 2), view_of<int>({double(position)}, 1));
    return download(q);
  };
  CHECK(turned(256) == rounded<bf16>(std::vector<double>{std::cos(256), std::sin(256)}));
  CHECK(turned(257) == rounded<bf16>(std::vector<double>{std::cos(257), std::sin(257)}));
}

TEST_CASE("columns beyond rotary_dim keep their bits, the payload of a NaN included") {
  for (int const head_dim : {9, 32})
    for (RopePairs const pairs : {RopePairs::half, RopePairs::interleaved}) {
      auto const x = view_of<bf16>(std::vector<double>(head_dim, 1), 1, 1, head_dim);
      auto host = elements(x);
      for (int c = 4; c < head_dim; ++c) host[c].bits = std::uint16_t(0x7f81 + c);
      set_elements(x, host);
      auto const y = view_of_nans<bf16>(1, 1, head_dim), none = view_of<bf16>({}, 1, 0, head_dim);
      rope(Space(), x, none, view_of<float>(angle_table<float>(3, 4), 3, 4), view_of<int>({2}, 1), y, none,
           {.rotary_dim = 4, .pairs = pairs});
      auto const now = elements(y);
      for (int c = 4; c < head_dim; ++c) CHECK(now[c].bits == host[c].bits);
    }
}

// CASES P07: parts of a packed QKV, heads of [heads, tokens, head_dim], and heads that lie between others.
TEST_CASE("heads may have any strides, and what lies between them is not touched") {
  std::vector<double> const positions{0, 3, 1, 4, 1, 5};
  auto const angles = angle_table<float>(8, 8);
  auto const table = view_of<float>(angles, 8, 8);
  auto const at = view_of<int>(positions, 6);
  auto const run = [&](int token, int head, int k_first, int k_heads, int size) {
    auto const x = random_values<float>(size, 1);
    auto const memory = view_of<float>(x, size);
    Tensor<float, 3> const queries{memory.data(), {6, 4, 16}, {token, head, 1}};
    Tensor<float, 3> const keys{memory.data() + k_first, {6, k_heads, 16}, {token, head, 1}};
    rope(Space(), queries, keys, table, at, {.rotary_dim = 8});
    auto expected = x;
    for (int part = 0; part < 2; ++part)
      for (int t = 0; t < 6; ++t)
        for (int h = 0; h < (part == 0 ? 4 : k_heads); ++h) {
          auto const first = expected.begin() + (part == 0 ? 0 : k_first) + t * token + h * head;
          auto const turned = reference({first, first + 16}, angles, {positions[t]}, {1, 1, 16, 8, RopePairs::half});
          std::copy(turned.begin(), turned.end(), first);
        }
    CHECK(deviation(download(memory), expected, 0.1) <= 1e-6);
  };
  run(8 * 16, 16, 4 * 16, 2, 6 * 8 * 16);          // [tokens, Q | K | V]
  run(16, 6 * 16, 4 * 6 * 16, 2, 6 * 6 * 16);      // [Q | K heads, tokens, head_dim]
  run(16, 7 * 16, 4 * 7 * 16, 2, 6 * 7 * 16);      // the same with room for one token more
  run(4 * 3 * 16, 3 * 16, 16, 4, 6 * 4 * 3 * 16);  // [tokens, heads, q k v]
}

TEST_CASE("a position outside the table makes NaN of what is rotated, and is reported") {
  Kokkos::View<int, Space> const status("status");
  auto const table = view_of<float>(angle_table<float>(4, 4), 4, 4);
  for (int const position : {-1, 0, 3, 4, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()})
    for (bool const in_place : {true, false}) {
      CAPTURE(position);
      auto const q = view_of<float>({1, 2, 3, 4, 5, 6}, 1, 1, 6), k = view_of<float>({1, 2, 3, 4, 5, 6}, 1, 1, 6);
      auto const at = view_of<int>({double(position)}, 1);
      kfuse::RopeHeadsOptions const options{.rotary_dim = 4, .status = status};
      Kokkos::deep_copy(status, 0);
      if (in_place)
        rope(Space(), q, k, table, at, options);
      else
        rope(Space(), q, k, table, at, q, k, options);
      bool const outside = position < 0 || position > 3;
      for (auto const& x : {download(q), download(k)}) {
        for (int c = 0; c < 4; ++c) CHECK(std::isnan(x[c]) == outside);
        CHECK(x[4] == 5);
        CHECK(x[5] == 6);
      }
      CHECK(kfuse::DataFault(int(download(status)[0])) ==
            (outside ? kfuse::DataFault::position : kfuse::DataFault::none));
    }
}

TEST_CASE("rope into another element type rounds once") {
  auto const x = random_values<bf16>(4 * 16, 1);
  auto const angles = angle_table<float>(8, 8);
  auto const wide = view_of_nans<float>(4, 1, 16), none = view_of<float>({}, 4, 0, 16);
  rope(Space(), view_of<bf16>(x, 4, 1, 16), view_of<bf16>({}, 4, 0, 16), view_of<float>(angles, 8, 8),
       view_of<int>({1, 2, 3, 4}, 4), wide, none, {.rotary_dim = 8});
  auto const expected = reference(x, angles, {1, 2, 3, 4}, {4, 1, 16, 8, RopePairs::half});
  CHECK(deviation(download(wide), expected, 0.1) <= 1e-6);

  // Into double it is computed in double, whatever it comes from.
  auto const exact = angle_table<double>(8, 8);
  auto const widest = view_of_nans<double>(4, 1, 16), nothing = view_of<double>({}, 4, 0, 16);
  rope(Space(), view_of<bf16>(x, 4, 1, 16), view_of<bf16>({}, 4, 0, 16), view_of<double>(exact, 8, 8),
       view_of<int>({1, 2, 3, 4}, 4), widest, nothing, {.rotary_dim = 8});
  auto const in_double = reference(x, exact, {1, 2, 3, 4}, {4, 1, 16, 8, RopePairs::half});
  CHECK(deviation(download(widest), in_double, 0.1) <= 1e-14);
}

// CASES P09
TEST_CASE("rope of no tokens and of no heads writes nothing") {
  auto const table = view_of<float>(angle_table<float>(4, 8), 4, 8);
  auto const q = view_of<float>({}, 0, 2, 8), k = view_of<float>({}, 0, 1, 8);
  rope(Space(), q, k, table, view_of<int>({}, 0));
  rope(Space(), q, k, table, view_of<int>({}, 0), q, k);
  rope(Space(), view_of<float>({}, 3, 0, 8), view_of<float>({}, 3, 0, 8), table, view_of<int>({0, 1, 2}, 3));
}

TEST_CASE("rope refuses what does not fit, and writes nothing") {
  auto const x = random_values<float>(2 * 2 * 8, 1);
  auto const q = view_of<float>(x, 2, 2, 8), k = view_of<float>(x, 2, 2, 8), three = view_of<float>(x, 2, 2, 8);
  auto const table = view_of<float>(angle_table<float>(4, 8), 4, 8);
  auto const at = view_of<int>({0, 1}, 2), few = view_of<int>({0}, 1);
  auto const refused = [&](std::string const& part, auto const& call) {
    std::string const message = error_of(call);
    CAPTURE(message);
    CHECK(message.starts_with("kfuse::rope"));
    CHECK(contains(message, part));
  };
  for (int const rotary : {3, 10, -2, 16})
    refused("rotary_dim must be even, positive and at most head_dim",
            [&] { rope(Space(), q, k, table, at, {.rotary_dim = rotary}); });
  refused("table: [4, 8] is not", [&] { rope(Space(), q, k, table, at, {.rotary_dim = 4}); });
  refused("table: has no positions", [&] { rope(Space(), q, k, view_of<float>({}, 0, 8), at); });
  refused("options.pairs: there is none with the number 7",
          [&] { rope(Space(), q, k, table, at, {.pairs = RopePairs(7)}); });
  refused("1 tokens of positions", [&] { rope(Space(), q, k, table, few); });
  refused("k: [2, 1, 16] is not", [&] { rope(Space(), q, view_of<float>(x, 2, 1, 16), table, at); });
  refused("q_out: shape [2, 1, 8]", [&] { rope(Space(), q, k, table, at, view_of_nans<float>(2, 1, 8), three); });
  refused("q_out: overlaps k ", [&] { rope(Space(), q, k, table, at, k, three); });
  refused("k_out: overlaps q ", [&] { rope(Space(), q, k, table, at, three, q); });
  refused("q_out: overlaps k_out ", [&] { rope(Space(), q, k, table, at, three, three); });
  Tensor<float, 3> const shifted{q.data() + 8, {1, 2, 8}, {16, 8, 1}}, first{q.data(), {1, 2, 8}, {16, 8, 1}};
  Tensor<float, 3> const k_of_one{k.data(), {1, 2, 8}, {16, 8, 1}}, three_of_one{three.data(), {1, 2, 8}, {16, 8, 1}};
  refused("overlap", [&] { rope(Space(), first, shifted, table, few); });
  refused("q_out: overlaps q ", [&] { rope(Space(), first, k_of_one, table, few, shifted, three_of_one); });
  Tensor<float, 3> const same{q.data(), {2, 2, 8}, {0, 8, 1}};
  refused("q: its rows overlap", [&] { rope(Space(), same, k, table, at); });
  for (auto const& view : {q, k, three}) CHECK(download(view) == x);
}

TEST_CASE("rope moves what is rotated, its angles and positions, and copies the rest where it must") {
  Tensor<bf16, 3> const q{nullptr, {6, 4, 64}, {256, 64, 1}}, k{nullptr, {6, 1, 64}, {64, 64, 1}};
  Tensor<float, 2> const table{nullptr, {1000, 64}, {64, 1}}, narrow{nullptr, {1000, 16}, {16, 1}};
  Tensor<int, 1> const at{nullptr, {6}, {1}};
  int const all = 6 * 5 * 64 * 2, angles = 6 * 64 * 4 + 6 * 4;
  auto const whole = kfuse::rope_traffic(Space(), q, k, table, at);
  CHECK(whole.bytes_read == all + angles);
  CHECK(whole.bytes_written == all);
  CHECK(whole.flops == 6 * 6 * 5 * 32);
  CHECK(kfuse::rope_traffic(Space(), q, k, table, at, q, k) == whole);
  CHECK(kfuse::rope_traffic(Space(), q, k, narrow, at, {.rotary_dim = 16}).bytes_written == all / 4);
  CHECK(kfuse::rope_traffic(Space(), q, k, narrow, at, q, k, {.rotary_dim = 16}).bytes_written == all);
}

}  // namespace
