// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/add_rmsnorm.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "norm_options.hpp"
#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::add_rmsnorm;
using kfuse::bf16;
using kfuse::fp16;
using namespace kfuse::test;

struct Expected {
  std::vector<double> sum, y;
};

// The definition: sum = x + residual, y = sum / sqrt(mean(sum^2) + epsilon) * weight
Expected reference(std::vector<double> const& x, std::vector<double> const& residual, std::vector<double> const& weight,
                   double epsilon) {
  std::size_t const columns = weight.size(), rows = x.size() / columns;
  Expected e{x, x};
  for (std::size_t i = 0; i < x.size(); ++i) e.sum[i] = x[i] + residual[i];
  for (std::size_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::size_t c = 0; c < columns; ++c) squares += e.sum[r * columns + c] * e.sum[r * columns + c];
    double const root = std::sqrt(squares / double(columns) + epsilon);
    for (std::size_t c = 0; c < columns; ++c)  // zeros stay zeros
      e.y[r * columns + c] = root == 0 ? 0 : e.sum[r * columns + c] / root * weight[c];
  }
  return e;
}

TEST_CASE_TEMPLATE("add_rmsnorm agrees with its definition in double", Element, double, float, bf16, fp16) {
  Space const space = another_instance();
  int const rows = 3;
  for (int const columns : {1, 5, 48, 64, 129, 2048, 4097, 20000})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 3}}) {
      CAPTURE(columns);
      CAPTURE(place.shift);
      auto const x = random_values<Element>(std::size_t(rows) * columns, columns);
      auto const r = random_values<Element>(std::size_t(rows) * columns, columns + 1);
      auto const w = random_values<Element>(columns, 2);
      GuardedMatrix<Element> const in(rows, columns, x, place), residual(rows, columns, r, place);
      GuardedMatrix<Element> const sum(rows, columns, place), y(rows, columns, place);
      add_rmsnorm(space, in.const_view(), residual.const_view(), view_of<Element>(w, columns), sum.view(), y.view());
      auto const expected = reference(x, r, w, 1e-6);
      CHECK(deviation(sum.values(), expected.sum) <= tolerance<Element>());
      CHECK(deviation(y.values(), expected.y) <= tolerance<Element>());
      CHECK(sum.guards_intact());
      CHECK(y.guards_intact());
      CHECK(in.values() == x);
      CHECK(residual.values() == r);
    }
}

// Constant rows show every digit that a sum of squares loses.
TEST_CASE("add_rmsnorm is as exact as its result where x has fewer bits") {
  for (int const columns : {4096, 65536}) {
    std::vector<double> const x(columns, 1), one(columns, 1);
    for (double const value : {0.37, 0.63, 0.9}) {
      auto const r = rounded<float>(std::vector<double>(columns, value));
      auto const sum = view_of_nans<float>(1, columns), y = view_of_nans<float>(1, columns);
      add_rmsnorm(Space(), view_of<bf16>(x, 1, columns), view_of<float>(r, 1, columns), view_of<float>(one, columns),
                  sum, y);
      CHECK(disagreement<float>(download(y), reference(x, r, one, 1e-6).y, columns) == "");
    }
  }
}

// CASES P02
TEST_CASE("add_rmsnorm sums squares that a 16-bit number cannot hold") {
  auto const one = view_of<fp16>(std::vector<double>(4096, 1), 4096);
  auto const sum = view_of_nans<fp16>(1, 4096), y = view_of_nans<fp16>(1, 4096);
  auto const of = [&](std::vector<double> const& x, std::vector<double> const& residual) {
    add_rmsnorm(Space(), view_of<fp16>(x, 1, 4096), view_of<fp16>(residual, 1, 4096), one, sum, y);
    return download(y);
  };
  CHECK(of(std::vector<double>(4096, 100), std::vector<double>(4096, 200)) == std::vector<double>(4096, 1));
  CHECK(download(sum) == std::vector<double>(4096, 300));
  std::vector<double> x(4096, 0), expected(4096, 0);
  x[0] = 150, expected[0] = 64;
  CHECK(of(x, x) == expected);
}

// CASES P03
TEST_CASE_TEMPLATE("add_rmsnorm of sums of zero is zero, and epsilon is under the root", Element, double, float, bf16,
                   fp16) {
  auto const sum = view_of_nans<Element>(3, 1), y = view_of_nans<Element>(3, 1);
  auto const one = view_of<Element>({1}, 1);
  auto const of = [&](std::vector<double> const& x, std::vector<double> const& residual) {
    add_rmsnorm(Space(), view_of<Element>(x, 3, 1), view_of<Element>(residual, 3, 1), one, sum, y);
    return download(y);
  };
  CHECK(of({0, 5, -7}, {0, -5, 7}) == std::vector<double>(3, 0));
  CHECK(of({0, 0, 0}, {0, 0, 0}) == std::vector<double>(3, 0));
  auto const small = rounded<Element>(1e-3);
  auto const right = [](double x) { return x / std::sqrt(x * x + 1e-6); };
  CHECK(deviation(of({1, 0, -small}, {1, small, 0}), {right(2), right(small), right(-small)}) <= tolerance<Element>());
}

TEST_CASE("add_rmsnorm is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("add_rmsnorm", {.power = 2}, [&]<class Element>(RandomCase& c) {
    auto const x = c.values<Element>(0), r = c.values<Element>(1), w = random_values<Element>(c.columns, c.seed);
    auto const in = c.matrix<Element>(0, x), residual = c.matrix<Element>(1, r);
    auto const sum = c.matrix<Element>(2), y = c.matrix<Element>(3);
    auto const weight = view_of<Element>(w, c.columns);
    auto const options = draw_norm_options<kfuse::RmsNormOptions>(c);
    add_rmsnorm(space, in.const_view(), residual.const_view(), weight, sum.view(), y.view(), options);
    auto const normed = reference(x, r, std::vector<double>(c.columns, 1), options.epsilon);
    auto const expected = weighed<Element>(normed.y, w, options, y.values());
    c.compare("sum", sum, normed.sum);
    c.compare("y", y, expected);
    c.expect(rounded_right<Element>(y.values(), expected), "y is rounded elsewhere, or twice");
    c.unchanged("x", in, x);
    c.unchanged("residual", residual, r);
    c.same_bits("y", [&](int first, int count) {
      auto const part = view_of_nans<Element>(count, c.columns), sums = view_of_nans<Element>(count, c.columns);
      add_rmsnorm(space, rows_of(in, first, count), rows_of(residual, first, count), weight, sums, part, options);
      return elements(part);
    });
  });
}

TEST_CASE("add_rmsnorm adds one to weights, and rounds before them, if asked for") {
  int const rows = 4, columns = 512;
  auto const x = random_values<bf16>(rows * columns, 1), r = random_values<bf16>(rows * columns, 2);
  auto const w = random_values<bf16>(columns, 3);
  auto one_more = w;
  for (double& v : one_more) v += 1;
  auto normed = rounded<bf16>(reference(x, r, std::vector<double>(columns, 1), 1e-6).y);
  for (std::size_t i = 0; i < normed.size(); ++i) normed[i] *= one_more[i % columns];
  auto const sum = view_of_nans<bf16>(rows, columns);
  auto const differs = [&](kfuse::NormCasting casting, std::vector<double> const& expected) {
    auto const y = view_of_nans<float>(rows, columns);
    add_rmsnorm(Space(), view_of<bf16>(x, rows, columns), view_of<bf16>(r, rows, columns), view_of<bf16>(w, columns),
                sum, y, {.weight = kfuse::NormWeight::one_plus, .casting = casting});
    auto const actual = download(y);
    int n = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) n += std::abs(actual[i] - expected[i]) > 1e-5;
    return n;
  };
  CHECK(differs(kfuse::NormCasting::gemma, reference(x, r, one_more, 1e-6).y) == 0);
  CHECK(differs(kfuse::NormCasting::llama, normed) <= 4);  // where rounding is a matter of the sum's last bit
  CHECK(differs(kfuse::NormCasting::gemma, normed) >= 1000);
}

// CASES P10: the norm takes the sum before it is rounded, and the sum is rounded to nearest.
TEST_CASE("add_rmsnorm rounds the sum to nearest and has the same bits for shifted memory") {
  auto const one = view_of_nans<bf16>(1, 1);
  add_rmsnorm(Space(), view_of<bf16>({1}, 1, 1), view_of<bf16>({0.005859375}, 1, 1), view_of<bf16>({1}, 1), one,
              view_of_nans<bf16>(1, 1));
  CHECK(download(one)[0] == 1.0078125);

  int const rows = 2, columns = 4096;
  auto const x = random_values<bf16>(rows * columns, 1), r = random_values<bf16>(rows * columns, 2);
  auto const w = view_of<bf16>(random_values<bf16>(columns, 3), columns);
  std::vector<double> sums, ys;
  for (Place2D const place : {Place2D{0, 0}, Place2D{1, 0}, Place2D{1, 1}}) {
    GuardedMatrix<bf16> const in(rows, columns, x, place), residual(rows, columns, r, place);
    GuardedMatrix<bf16> const sum(rows, columns, place), y(rows, columns, place);
    add_rmsnorm(Space(), in.const_view(), residual.const_view(), w, sum.view(), y.view());
    if (sums.empty()) {
      sums = sum.values();
      ys = y.values();
    }
    CHECK(sum.values() == sums);
    CHECK(y.values() == ys);
  }
}

// CASES P11
TEST_CASE("add_rmsnorm may overwrite x and the residual, either way round") {
  for (int const columns : {40, 4096, 40000}) {
    int const rows = 4;
    auto const x = random_values<bf16>(std::size_t(rows) * columns, 1);
    auto const r = random_values<bf16>(std::size_t(rows) * columns, 2);
    auto const w = view_of<bf16>(random_values<bf16>(columns, 3), columns);
    auto const a = view_of<bf16>(x, rows, columns), b = view_of<bf16>(r, rows, columns);
    auto const sum = view_of_nans<bf16>(rows, columns), y = view_of_nans<bf16>(rows, columns);
    add_rmsnorm(Space(), a, b, w, sum, y);
    std::size_t wrong = 0;
    for (int repeat = 0; repeat < (columns < 5000 ? 50 : 3); ++repeat)
      for (bool const crossed : {false, true}) {
        upload(a, x);
        upload(b, r);
        if (crossed)
          add_rmsnorm(Space(), a, b, w, a, b);
        else
          add_rmsnorm(Space(), a, b, w, b, a);
        wrong += !same_bits(crossed ? a : b, sum) || !same_bits(crossed ? b : a, y);
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("add_rmsnorm with a workspace has the same bits, also in place") {
  int const columns = 100000;
  auto const x = view_of<float>(random_values<float>(columns, 1), 1, columns);
  auto const r = view_of<float>(random_values<float>(columns, 2), 1, columns);
  auto const w = view_of<float>(random_values<float>(columns, 3), columns);
  auto const sum = view_of_nans<float>(1, columns), y = view_of_nans<float>(1, columns);
  kfuse::Workspace<Space> workspace(1 << 20);
  add_rmsnorm(Space(), x, r, w, sum, y);
  add_rmsnorm(Space(), x, r, w, r, x, {}, workspace);
  CHECK(same_bits(r, sum));
  CHECK(same_bits(x, y));
}

TEST_CASE("add_rmsnorm of no rows writes nothing") {
  auto const none = view_of_nans<float>(0, 4);
  add_rmsnorm(Space(), none, none, view_of<float>({1, 1, 1, 1}, 4), none, none);
}

TEST_CASE("add_rmsnorm refuses outputs that overlap, and what does not fit") {
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4),
             r = view_of<float>(random_values<float>(12, 2), 3, 4);
  auto const w = view_of<float>({1, 1, 1, 1}, 4);
  auto const y = view_of_nans<float>(3, 4), small = view_of_nans<float>(2, 4);
  CHECK(contains(error_of([&] { add_rmsnorm(Space(), x, r, w, y, y); }), "kfuse::add_rmsnorm: y: overlaps sum"));
  CHECK(contains(error_of([&] { add_rmsnorm(Space(), x, small, w, r, y); }),
                 "kfuse::add_rmsnorm: residual: shape [2, 4]"));
  CHECK(contains(error_of([&] { add_rmsnorm(Space(), x, r, w, small, y); }), "kfuse::add_rmsnorm: sum: shape [2, 4]"));
  // One row further down: a team would read what another has written.
  auto const long_x = view_of<float>(random_values<float>(16, 1), 4, 4);
  auto const upper = Kokkos::subview(long_x, Kokkos::pair(0, 3), Kokkos::ALL);
  auto const lower = Kokkos::subview(long_x, Kokkos::pair(1, 4), Kokkos::ALL);
  CHECK(
      contains(error_of([&] { add_rmsnorm(Space(), upper, r, w, lower, y); }), "kfuse::add_rmsnorm: sum: overlaps x"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

// CASES P45
TEST_CASE("add_rmsnorm moves its arguments once") {
  kfuse::Tensor<fp16, 2> const x{nullptr, {4096, 4096}, {4096, 1}};
  kfuse::Tensor<fp16, 1> const w{nullptr, {4096}, {1}};
  CHECK(kfuse::add_rmsnorm_traffic(Space(), x, x, w, x, x).bytes() == 134225920);
}

}  // namespace
