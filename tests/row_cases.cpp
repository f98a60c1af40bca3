// SPDX-License-Identifier: Apache-2.0
// What is true of every row operator, whatever it computes: what it computes is tested by files of their own.
#include "row_cases.hpp"

#include <kfuse/core/device.hpp>
#include <kfuse/core/ledger.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace kfuse::test;
using kfuse::bf16;

// CASES P06, P07, P10
TEST_CASE_TEMPLATE("rows of any width have the same bits wherever they lie, alone and among others", T, AllBf16,
                   AllDouble, Bf16ToFloat, DoubleToBf16) {
  constexpr int widths[] = {1,   2,   3,   5,   7,   8,   15,  16,  17,  31,   33,   48,   63,   64,   65,   100,
                            127, 129, 255, 257, 320, 511, 513, 640, 781, 1000, 1023, 1025, 1408, 2816, 3584, 4097};
  for (RowOperator<T> const& run : row_operators<T>()) {
    for (int const columns : widths) {
      CAPTURE(run.name);
      CAPTURE(columns);
      Guarded const packed;
      Arguments<T> a(Space(), {0, 5, columns}, packed);
      run(a);
      auto const all = a.results();
      CHECK(!has_nan(all));
      CHECK(packed.intact());
      CHECK(a.inputs_unchanged());
      auto const two = run.rows == Rows::joint ? results(run, {0, 2, columns}) : rows_in(all, 5, 0, 2);
      for (Place2D const place : {Place2D{1, 0}, Place2D{0, 8}, Place2D{3, 5}}) {
        Guarded const elsewhere(place);
        CHECK(same(results(run, {0, 2, columns}, elsewhere), two));
        CHECK(elsewhere.intact());
      }
      if (run.rows != Rows::alone) continue;
      CHECK(same(results(run, {3, 2, columns}), rows_in(all, 5, 3, 2)));
      CHECK(same(results(run, {2, 1, columns}), rows_in(all, 5, 2, 1)));
    }
  }
}

namespace {

// The operators that round x's normalised values, or their sum, to x's type on the way to another.
bool rounds_between(std::string const& name) {
  return contains(name, "rmsnorm") || contains(name, "residual_layernorm_dropout");
}
// Does a result of these types agree with that of the same values in double?
bool agrees(Bf16ToFloat, double actual, double expected, bool rounds) {
  double const bound = rounds ? 1.02 / 256 : 1e-6;
  return std::abs(actual - expected) <= bound * std::max(1.0, std::abs(expected));
}
bool agrees(DoubleToBf16, double actual, double expected, bool) {  // one rounding, or none
  return actual == rounded<bf16>(expected) || actual == rounded<float>(expected) ||
         std::abs(actual - expected) <= 1e-13 * std::max(1.0, std::abs(expected));
}

}  // namespace

// Arguments are exact in all types.
TEST_CASE_TEMPLATE("mixed types give what double gives", T, Bf16ToFloat, DoubleToBf16) {
  auto const in_double = row_operators<AllDouble>();
  auto const mixed = row_operators<T>();
  for (std::size_t i = 0; i < mixed.size(); ++i)
    for (int const columns : {1, 7, 64, 1000, 4097, 65536}) {
      CAPTURE(mixed[i].name);
      CAPTURE(columns);
      auto const expected = results(in_double[i], {0, 2, columns}), actual = results(mixed[i], {0, 2, columns});
      REQUIRE(actual.size() == expected.size());
      std::size_t wrong = 0;
      while (wrong < actual.size() && agrees(T(), actual[wrong], expected[wrong], rounds_between(mixed[i].name)))
        ++wrong;
      if (wrong == actual.size()) continue;
      CAPTURE(wrong);
      CHECK(actual[wrong] == expected[wrong]);
    }
}

namespace {

using Bytes = Kokkos::View<std::uint8_t*, Space>;

auto bytes_of(Lie const& lie, std::size_t first, std::size_t count) {
  return Kokkos::View<std::uint8_t*, Space, Kokkos::MemoryUnmanaged>(static_cast<std::uint8_t*>(lie.data) + first,
                                                                     count);
}

}  // namespace

TEST_CASE_TEMPLATE("a row of NaNs spoils no other", T, AllBf16, AllDouble, Bf16ToFloat, DoubleToBf16) {
  for (RowOperator<T> const& run : row_operators<T>()) {
    for (int const columns : {1, 8, 100, 4097, 33000}) {
      if (run.rows == Rows::joint) continue;
      CAPTURE(run.name);
      CAPTURE(columns);
      Arguments<T> a(Space(), {0, 5, columns}, Guarded());
      run(a);
      auto const before = a.results();
      a.restore();
      for (auto const& [letter, known] : a.asked())
        if (auto const& m = known.first; m.use != Use::written && m.rows == 5)
          Kokkos::deep_copy(bytes_of(known.second, 2 * m.row_bytes(), m.row_bytes()), std::uint8_t(0xff));
      run(a);
      CHECK(same(rows_in(a.results(), 5, 0, 2), rows_in(before, 5, 0, 2)));
      CHECK(same(rows_in(a.results(), 5, 3, 2), rows_in(before, 5, 3, 2)));
    }
  }
}

// CASES P49
TEST_CASE_TEMPLATE("an operator comes after what its instance was given before", T, AllBf16, AllDouble, Bf16ToFloat,
                   DoubleToBf16) {
  Space const space = another_instance();
  auto const large = view_of<float>(random_values<float>(1 << 20, 1), 1 << 20);
  for (RowOperator<T> const& run : row_operators<T>()) {
    CAPTURE(run.name);
    Arguments<T> a(space, {0, 37, 1000}, Guarded());
    run(a);
    auto const expected = a.results();
    a.restore();
    std::vector<std::pair<Lie, Bytes>> saved;
    for (auto const& [letter, known] : a.asked()) {
      auto const memory = bytes_of(known.second, 0, std::size_t(known.first.rows) * known.first.row_bytes());
      Bytes const copy("kfuse::test::saved", memory.size());
      Kokkos::deep_copy(copy, memory);
      if (known.first.use != Use::written) saved.emplace_back(known.second, copy);
      Kokkos::deep_copy(memory, std::uint8_t(0xff));  // NaNs, and indices of nothing
    }
    Kokkos::fence("kfuse::test: the inputs are spoiled");
    for (int i = 0; i < (kfuse::impl::Backend<Space>::is_host ? 1 : 200); ++i)  // what takes a while
      kfuse::copy_bytes(space, large.data() + (1 << 19), large.data(), std::size_t(1) << 21);
    for (auto const& [lie, copy] : saved) kfuse::copy_bytes(space, lie.data, copy.data(), copy.size());
    run(a);
    space.fence("kfuse::test: the operator is done");
    CHECK(same(a.results(), expected));
  }
}
