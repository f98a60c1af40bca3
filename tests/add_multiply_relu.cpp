// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/add_multiply_relu.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::add_multiply_relu;
using kfuse::bf16;
using kfuse::fp16;
using namespace kfuse::test;

// The definition. The sum is one of Real<Element>: of values near its end, it is infinite.
template <class Element>
std::vector<double> reference(std::vector<double> const& x, std::vector<double> const& addend,
                              std::vector<double> const& factor) {
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const v = rounded_or_infinite<kfuse::Real<Element>>(x[i] + addend[i]) * factor[i];
    y[i] = v < 0 ? 0 : v;
  }
  return y;
}

TEST_CASE("add_multiply_relu is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("add_multiply_relu", {}, [&]<class Element>(RandomCase& c) {
    auto const x = c.values<Element>(0), a = c.values<Element>(1), f = c.values<Element>(2);
    auto const in = c.matrix<Element>(0, x), addend = c.matrix<Element>(1, a), factor = c.matrix<Element>(2, f);
    auto const out = c.matrix<Element>(3);
    add_multiply_relu(space, in.const_view(), addend.const_view(), factor.const_view(), out.view());
    c.compare("y", out, reference<Element>(x, a, f));
    c.unchanged("x", in, x);
    c.unchanged("addend", addend, a);
    c.unchanged("factor", factor, f);
    c.same_bits("y", [&](int first, int count) {
      auto const y = view_of_nans<Element>(count, c.columns);
      add_multiply_relu(space, rows_of(in, first, count), rows_of(addend, first, count), rows_of(factor, first, count),
                        y);
      return elements(y);
    });
    auto const y = out.values();
    auto const& in_place = c.number % 3 == 0 ? in : c.number % 3 == 1 ? addend : factor;
    add_multiply_relu(space, in.view(), addend.view(), factor.view(), in_place.view());
    c.unchanged("y in place", in_place, y);
  });
}

TEST_CASE_TEMPLATE("relu of a product keeps NaN and the right infinity", Element, double, float, bf16, fp16) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  auto const x = view_of<Element>({NAN, 1, infinity, -infinity, infinity, 1, -1}, 1, 7);
  auto const addend = view_of<Element>({1, NAN, 1, 1, 1, -1, 0}, 1, 7);
  auto const factor = view_of<Element>({1, 1, 2, 2, -2, infinity, -0.5}, 1, 7);
  auto const y = view_of_nans<Element>(1, 7);
  add_multiply_relu(Space(), x, addend, factor, y);
  CHECK(deviation(download(y), {NAN, NAN, infinity, 0, 0, NAN, 0.5}) == 0);
}

TEST_CASE("elements may differ in type, and the product is rounded once") {
  int const rows = 3, columns = 129;
  auto const x = random_values<fp16>(rows * columns, 1), a = random_values<float>(rows * columns, 2),
             f = random_values<bf16>(rows * columns, 3);
  auto const y = view_of_nans<bf16>(rows, columns);
  add_multiply_relu(Space(), view_of<fp16>(x, rows, columns), view_of<float>(a, rows, columns),
                    view_of<bf16>(f, rows, columns), y);
  CHECK(disagreement<bf16>(download(y), reference<float>(x, a, f), columns).empty());
}

TEST_CASE("add_multiply_relu of nothing writes nothing") {
  auto const none = view_of_nans<float>(0, 4);
  add_multiply_relu(Space(), none, none, none, view_of_nans<float>(0, 4));
}

TEST_CASE("add_multiply_relu refuses what does not fit, and writes nothing") {
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4), y = view_of_nans<float>(3, 4);
  auto const turned = view_of<float>(random_values<float>(12, 1), 4, 3);
  CHECK(contains(error_of([&] { add_multiply_relu(Space(), x, turned, x, y); }),
                 "kfuse::add_multiply_relu: addend: shape [4, 3] does not match the chain's [3, 4]"));
  CHECK(contains(error_of([&] { add_multiply_relu(Space(), x, x, turned, y); }),
                 "kfuse::add_multiply_relu: factor: shape [4, 3] does not match"));
  CHECK(contains(error_of([&] { add_multiply_relu(Space(), x, x, x, turned); }),
                 "kfuse::add_multiply_relu: y: shape [4, 3] does not match"));
  auto const rows = [&](int first) { return Kokkos::subview(y, Kokkos::pair(first, first + 2), Kokkos::ALL); };
  CHECK(contains(error_of([&] { add_multiply_relu(Space(), rows(0), rows(0), rows(0), rows(1)); }),
                 "kfuse::add_multiply_relu: y: overlaps x"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("add_multiply_relu moves its arguments once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 64}, {64, 1}};
  CHECK(kfuse::add_multiply_relu_traffic(Space(), x, x, x, x).bytes() == 4 * 10 * 64 * 2);
}

}  // namespace
