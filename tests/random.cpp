// SPDX-License-Identifier: Apache-2.0
// Random numbers against published vectors, and dropout, which must be a function of (p, seed, offset, row, column).
#include <kfuse/core/fuse.hpp>
#include <kfuse/core/random.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/dropout.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "dropped.hpp"
#include "support.hpp"

namespace {

using namespace kfuse::test;
using kfuse::RandomState;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

// Test vectors of Random123 for philox4x32-10 and philox4x32-7.
struct Known {
  std::uint32_t counter[4], key[2], output[4], after_seven[4];
};
constexpr Known known[] = {
    {{0, 0, 0, 0},
     {0, 0},
     {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
     {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
    {{~0u, ~0u, ~0u, ~0u},
     {~0u, ~0u},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
     {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
     {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
};

template <int rounds>
struct Draw {
  Kokkos::View<std::uint32_t*, Space> words;
  Known given;
  KOKKOS_FUNCTION void operator()(int) const {
    auto const& c = given.counter;
    auto const drawn = kfuse::philox<rounds>({{c[0], c[1], c[2], c[3]}}, given.key[0], given.key[1]);
    for (int i = 0; i < 4; ++i) words(i) = drawn[i];
  }
};

// Word (row, column) of a stream, from the definition of the layout in random.hpp and the raw generator.
std::uint32_t word(RandomState const& state, std::uint64_t row, int column) {
  kfuse::Philox const counter{{std::uint32_t(column / 4), std::uint32_t(row), std::uint32_t(state.offset),
                               std::uint32_t((row >> 32) % 65536 + (state.offset >> 32) * 65536)}};
  return kfuse::philox(counter, std::uint32_t(state.seed), std::uint32_t(state.seed >> 32)).word[column % 4];
}

// dropout(x) of a [rows, columns] matrix, in a place of its own.
std::vector<double> dropped(int rows, int columns, std::vector<double> const& x, double p, RandomState const& state,
                            Place2D place = {}) {
  Space const space = another_instance();
  GuardedMatrix<float> const in(rows, columns, x, place), out(rows, columns, place);
  kfuse::fuse(space, "test::dropout", kfuse::load(in.view()) | kfuse::dropout(p, state) | kfuse::store(out.view()));
  space.fence();
  CHECK(out.guards_intact());
  return out.values();
}
std::vector<double> mask(int rows, int columns, double p, RandomState const& state, Place2D place = {}) {
  return dropped(rows, columns, std::vector<double>(std::size_t(rows) * columns, 1), p, state, place);
}

double agreement(std::vector<double> const& a, std::vector<double> const& b) {
  std::size_t same = 0;
  for (std::size_t i = 0; i < a.size(); ++i) same += a[i] == b[i];
  return double(same) / double(a.size());
}

}  // namespace

template <int rounds>
void check_vector(Known const& k, std::uint32_t const* output) {
  auto const& c = k.counter;
  auto const drawn = kfuse::philox<rounds>({{c[0], c[1], c[2], c[3]}}, k.key[0], k.key[1]);
  Kokkos::View<std::uint32_t*, Space> const words("words", 4);
  Kokkos::parallel_for("draw", Kokkos::RangePolicy<Space>(0, 1), Draw<rounds>{words, k});
  auto const on_device = elements(words);
  for (int i = 0; i < 4; ++i) {
    CHECK(drawn[i] == output[i]);
    CHECK(on_device[i] == output[i]);
  }
}

TEST_CASE("Philox gives the published vectors on the host and on the device") {
  for (Known const& k : known) {
    check_vector<10>(k, k.output);
    check_vector<7>(k, k.after_seven);
  }
}

TEST_CASE("streams, blocks and rows do not meet") {
  RandomState const states[] = {{1, 0}, {2, 0}, {1, 1}, {std::uint64_t(1) << 32, 0}, {1, std::uint64_t(1) << 32}};
  std::uint64_t const rows[] = {0, 1, std::uint64_t(1) << 32};
  std::vector<std::uint32_t> all;
  for (auto const& state : states)
    for (std::uint64_t row : rows)
      for (int column : {0, 1, 2, 3, 4, 1 << 30}) {
        all.push_back(kfuse::random_quad(state, std::ptrdiff_t(row), column / 4).word[column % 4]);
        CHECK(all.back() == word(state, row, column));
      }
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
}

TEST_CASE("dropout keeps the values whose number is not below p, scaled, and zeroes the others") {
  RandomState const state{(std::uint64_t(5) << 32) + 3, (std::uint64_t(1) << 40) + 9};
  for (double p : {0.1, 0.5, 0.9}) {
    int const rows = 5, columns = 37;
    auto const x = random_values<float>(rows * columns, 1);
    CHECK(deviation(dropped(rows, columns, x, p, state), kfuse::test::dropped(x, columns, p, state)) <
          tolerance<float>());
  }
}

// Of 2^20 values with p near 0, 1.5 of 65536 have an upper half that decides nothing, and half of these are dropped.
TEST_CASE("p counts to 32 bits: where the upper half of a number does not decide, the lower one does") {
  int const rows = 256, columns = 4096;
  std::vector<double> const ones(std::size_t(rows) * columns, 1);
  for (double const p : {0x1.8p-16, 1 - 0x1.8p-16}) {
    auto const y = mask(rows, columns, p, {5, 1});
    auto const expected = kfuse::test::dropped(ones, columns, p, {5, 1});
    auto const coarse = kfuse::test::dropped(ones, columns, p + 0x1p-17, {5, 1});
    CHECK(deviation(y, expected) < 1e-6);
    CHECK(std::count(coarse.begin(), coarse.end(), 0.0) > std::count(expected.begin(), expected.end(), 0.0));
  }
}

TEST_CASE("p = 0 changes no bit, p = 1 leaves exact zeros whatever was there") {
  auto const x = rounded<float>({1, -2, 1e38, infinity, -infinity, nan_value, 0, 3e-45});
  CHECK(deviation(dropped(2, 4, x, 0, {7, 0}), x) == 0);
  auto const zeros = dropped(2, 4, x, 1, {7, 0});
  CHECK(std::all_of(zeros.begin(), zeros.end(), [](double v) { return v == 0; }));
}

TEST_CASE("p is the probability to drop") {
  int const rows = 256, columns = 4096;  // 2^20
  auto const y = mask(rows, columns, 0.25, {42, 0});
  std::size_t kept = 0, neither = 0;
  for (double v : y) {
    kept += v != 0;
    neither += v != 0 && std::abs(v - 4.0 / 3) > 1e-6;
  }
  CHECK(neither == 0);
  CHECK(std::abs(double(kept) / double(y.size()) - 0.75) < 0.0017);
}

TEST_CASE("another seed or offset is another mask; the same ones are the same mask, whatever ran before") {
  int const rows = 256, columns = 4096;
  auto const first = mask(rows, columns, 0.5, {1, 0});
  CHECK(std::abs(agreement(first, mask(rows, columns, 0.5, {2, 0})) - 0.5) < 0.002);
  CHECK(std::abs(agreement(first, mask(rows, columns, 0.5, {1, 1})) - 0.5) < 0.002);
  for (int calls : {0, 1, 5}) {
    for (int i = 0; i < calls; ++i) mask(3, 8, 0.5, {9, 0});
    CHECK(mask(rows, columns, 0.5, {1, 0}) == first);
  }
}

TEST_CASE("whether a value is dropped depends on its row and column alone") {
  RandomState const state{11, 3};
  int const rows = 9, columns = 4096;
  auto const whole = mask(rows, columns, 0.5, state);
  auto const agrees = [&](int r, int c, Place2D place = {}) {
    auto const part = mask(r, c, 0.5, state, place);
    bool same = true;
    for (int row = 0; row < r; ++row)
      for (int column = 0; column < c; ++column)
        same = same && part[std::size_t(row) * c + column] == whole[std::size_t(row) * columns + column];
    return same;
  };
  for (int c : {1, 2, 3, 4, 7, 8, 33, 64, 129, 1000, 4096}) CHECK(agrees(rows, c));
  for (int r : {1, 2, 5}) CHECK(agrees(r, 96));
  CHECK(agrees(rows, 96, {1, 0}));
  CHECK(agrees(rows, 96, {0, 3}));
  CHECK(agrees(rows, 1000, {3, 5}));
}

TEST_CASE("the element type does not change the mask") {
  RandomState const state{21, 8};
  int const rows = 4, columns = 256;
  auto const expected = mask(rows, columns, 0.5, state);
  auto const of = [&](auto const& ones) {
    Space const space;
    kfuse::fuse(space, "test::dropout", kfuse::load(ones) | kfuse::dropout(0.5, state) | kfuse::store(ones));
    return download(ones);
  };
  std::vector<double> const ones(std::size_t(rows) * columns, 1);
  CHECK(of(view_of<kfuse::bf16>(ones, rows, columns)) == expected);
  CHECK(of(view_of<double>(ones, rows, columns)) == expected);
}

TEST_CASE("a state in device memory is read when the kernel runs") {
  int const rows = 4, columns = 256;
  Space const space = another_instance();
  Kokkos::View<RandomState, Space> const state("state");
  auto const x = view_of<float>(std::vector<double>(std::size_t(rows) * columns, 1), rows, columns);
  auto const y = view_of_nans<float>(rows, columns);
  auto const chain = kfuse::load(x) | kfuse::dropout(0.5, state) | kfuse::store(y);
  for (RandomState const given : {RandomState{3, 0}, RandomState{3, 1}}) {
    Kokkos::deep_copy(state, given);
    kfuse::fuse(space, "test::dropout", chain);
    space.fence();
    CHECK(download(y) == mask(rows, columns, 0.5, given));
  }
}

TEST_CASE("dropping everything before a residual is added leaves exactly the residual") {
  int const rows = 3, columns = 40;
  auto const x = view_of<float>(random_values<float>(rows * columns, 2), rows, columns);
  auto const b = view_of<float>(random_values<float>(columns, 3), columns);
  auto const values = random_values<float>(rows * columns, 4);
  auto const residual = view_of<float>(values, rows, columns), y = view_of_nans<float>(rows, columns);
  kfuse::fuse(
      Space(), "test::dropout",
      kfuse::load(x) | kfuse::bias(b) | kfuse::dropout(1, RandomState{1, 0}) | kfuse::add(residual) | kfuse::store(y));
  CHECK(download(y) == values);
}

TEST_CASE("a p that is no probability is refused") {
  auto const x = view_of<float>(std::vector<double>(8, 1), 2, 4);
  for (double p : {-0.1, 1.1, nan_value}) {
    auto const message = error_of([&] {
      kfuse::fuse(Space(), "user::drop", kfuse::load(x) | kfuse::dropout(p, RandomState{}) | kfuse::store(x));
    });
    CHECK(contains(message, "user::drop: dropout: the probability to drop a value must lie in [0, 1]"));
  }
  CHECK(download(x) == std::vector<double>(8, 1));
}
