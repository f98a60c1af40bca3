// SPDX-License-Identifier: Apache-2.0
// The random cases reach what they should, and find faults that are planted in an operator.
#include "random_cases.hpp"

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace kfuse::test;
using kfuse::bf16, kfuse::fp16;

template <class X, class Y>
void twice(X const& x, Y const& y, double factor = 2) {
  kfuse::fuse(Space(), "test::twice", kfuse::load(x) | kfuse::scale(factor) | kfuse::store(y));
}

std::vector<double> doubled(std::vector<double> x) {
  for (double& v : x) v *= 2;
  return x;
}

// Changes a value, or what lies beyond a row.
template <class Element>
void change(GuardedMatrix<Element> const& m, int row, int column, double value) {
  auto const y = m.view();
  Element* const place = y.data() + row * std::ptrdiff_t(y.stride(0)) + column;
  upload(Kokkos::View<Element*, Space, Kokkos::MemoryUnmanaged>(place, 1), {value});
}

// What is found in `twice` after `damage(c, x, y)`.
template <class Damage>
std::string found(Damage const& damage, int cases = 60) {
  return faults_in_random_cases("twice", {.cases = cases}, [&]<class Element>(RandomCase& c) {
    auto const values = c.values<Element>(0);
    auto const x = c.matrix<Element>(0, values), y = c.matrix<Element>(1);
    twice(x.const_view(), y.view());
    damage(c, x, y);
    c.compare("y", y, doubled(values));
    c.unchanged("x", x, values);
  });
}

// The same for an operator that multiplies by a factor that may depend on how many rows there are.
template <class Factor>
std::string found_in_rows(Factor const& factor) {
  return faults_in_random_cases("twice", {.cases = 60}, [&]<class Element>(RandomCase& c) {
    auto const x = c.matrix<Element>(0, random_values<Element>(std::size_t(c.rows) * c.columns, c.seed));
    c.same_bits("y", [&](int first, int count) {
      auto const y = view_of_nans<Element>(count, c.columns);
      twice(rows_of(x, first, count), y, factor(first, count));
      return elements(y);
    });
  });
}

TEST_CASE("twice is right on 2,000 random shapes") {
  for_random_cases("twice", {}, [&]<class Element>(RandomCase& c) {
    auto const values = c.values<Element>(0);
    auto const x = c.matrix<Element>(0, values), y = c.matrix<Element>(1);
    twice(x.const_view(), y.view());
    c.compare("y", y, doubled(values));
    c.unchanged("x", x, values);
    c.same_bits("y", [&](int first, int count) {
      auto const part = view_of_nans<Element>(count, c.columns);
      twice(rows_of(x, first, count), part);
      return elements(part);
    });
  });
}

TEST_CASE("a wrong value in the last column is found, and where") {
  auto const faults = found([](auto& c, auto&, auto& y) { change(y, c.rows - 1, c.columns - 1, 12345); });
  CHECK(contains(faults, "twice, case 0: "));
  CHECK(contains(faults, "is 12345"));
  CHECK(contains(faults, "instead of"));
  CHECK(found([](auto&, auto&, auto&) {}).empty());
}

TEST_CASE("a value that is not written, or written where NaN is right, is found") {
  auto const change_in = [](ValueKind kind, double value) {
    return [=](auto& c, auto&, auto& y) {
      if (c.kind == kind) change(y, 0, 0, value);
    };
  };
  CHECK(contains(found(change_in(ValueKind::ordinary, NAN)), "is nan instead of"));
  CHECK(contains(found(change_in(ValueKind::huge, NAN), 200), "huge values"));
  CHECK(contains(disagreement<float>({1, 0}, {1, NAN}, 2), "(0, 1) is 0 instead of nan"));
}

TEST_CASE("what is written beyond a row is found, and so is a changed input") {
  CHECK(contains(found([](auto& c, auto&, auto& y) { change(y, c.rows - 1, c.columns, 0); }), "beyond its rows"));
  CHECK(contains(found([](auto&, auto&, auto& y) { change(y, 0, -1, 0); }), "beyond its rows"));
  CHECK(contains(found([](auto&, auto& x, auto&) { change(x, 0, 0, 77); }), "x: an input is changed"));
}

TEST_CASE_TEMPLATE("one unit in the last place passes, two do not", Element, bf16, fp16) {
  double const unit = ulp<Element>(1.5);
  CHECK(disagreement<Element>({1.5 + unit, -1}, {1.5 + unit / 3, -1}, 2).empty());
  CHECK(!disagreement<Element>({1.5 + 2 * unit, -1}, {1.5 + unit / 3, -1}, 2).empty());
  CHECK(!disagreement<Element>({1.5, -1 - unit}, {1.5, -1 + unit}, 2).empty());
}
TEST_CASE("float and double are held against the largest value of their row alone") {
  CHECK(disagreement<float>({100, 1.00009}, {100, 1}, 2).empty());
  CHECK(!disagreement<float>({100, 1.00011}, {100, 1}, 2).empty());
  CHECK(contains(disagreement<float>({100, 1.00009}, {100, 1}, 1), "(1, 0) is 1.0000899"));
  CHECK(disagreement<double>({100, 1 + 9e-12}, {100, 1}, 2).empty());
  CHECK(!disagreement<double>({100, 1 + 2e-11}, {100, 1}, 2).empty());
  CHECK(disagreement<float>({0.1}, {0}, 1, {2e5}).empty());  // where numbers of 200,000 cancelled
  CHECK(disagreement<float>({HUGE_VAL}, {1e39}, 1).empty());
  CHECK(!disagreement<float>({3.4e38}, {HUGE_VAL}, 1).empty());
  CHECK(!disagreement<float>({HUGE_VAL}, {-HUGE_VAL}, 1).empty());
  CHECK(!disagreement<float>({1, 1}, {1}, 1).empty());
}

TEST_CASE("a row that depends on others, or on how many there are, is found") {
  CHECK(found_in_rows([](int, int) { return 2.0; }).empty());
  CHECK(contains(found_in_rows([](int, int count) { return count == 1 ? 2.5 : 2.0; }), "has other bits alone"));
  CHECK(contains(found_in_rows([](int first, int count) { return first > 0 && count > 1 ? 2.5 : 2.0; }),
                 "other bits among fewer rows"));
  int runs = 0;
  CHECK(contains(found_in_rows([&](int, int) { return runs++ == 1 ? 2.5 : 2.0; }), "a second run gives other bits"));
}

TEST_CASE("2,000 cases hold all types and kinds, long and short rows, and many of them") {
  std::set<kfuse::ElementType> types;
  std::set<ValueKind> kinds;
  int one_row = 0, many_rows = 0, one_column = 0, odd = 0, wide = 0, aligned = 0, powers = 0;
  double elements = 0;
  for (int i = 0; i < 2000; ++i) {
    RandomCase const c(seed_of_cases("any"), i, {}), again(seed_of_cases("any"), i, {}), even(1, i, {.multiple = 6});
    types.insert(c.type);
    kinds.insert(c.kind);
    one_row += c.rows == 1;
    many_rows += c.rows > 500000;
    one_column += c.columns == 1;
    odd += c.columns % 2;
    wide += c.columns > 16384;
    powers += (c.columns & (c.columns - 1)) == 0;
    aligned += c.place(0).shift % 8 == 0 && c.place(1).shift % 8 == 0 && c.place(0).gap % 8 == 0;
    elements += double(c.rows) * c.columns;
    CHECK(c.rows >= 1);
    CHECK(c.columns >= 1);
    CHECK(c.columns <= 70000);
    CHECK(even.columns % 6 == 0);
    CHECK((again.rows == c.rows && again.columns == c.columns && again.kind == c.kind));
  }
  CHECK(types.size() == 4);
  CHECK(kinds.size() == 10);
  CHECK(one_row > 200);
  CHECK(many_rows == 4);
  CHECK(one_column > 50);
  CHECK(odd > 500);
  CHECK(wide > 20);
  CHECK(powers > 200);
  CHECK(aligned > 900);
  CHECK(elements < 3e7);
}

TEST_CASE("a case can be run alone") {
  auto const numbers = [](char const* chosen) {
    std::string all;
    auto const note = [&]<class Element>(RandomCase& c) { all += std::to_string(c.number) + " "; };
    auto const faults = faults_in_random_cases("numbers", {}, note, chosen);
    return all + faults;
  };
  CHECK(numbers("17") == "17 ");
  CHECK(numbers("3-5") == "3 4 5 ");
  CHECK(numbers("1999-5000") == "1999 ");
  CHECK(contains(numbers("7000"), "none of the cases"));
}

}  // namespace
