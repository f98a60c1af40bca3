// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/swiglu.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::fp16;
using kfuse::swiglu;
using namespace kfuse::test;

double silu(double x) {
  return x / (1 + std::exp(-x));
}
// The definition: rows are [gate | up], y = silu(gate) * up
std::vector<double> reference(std::vector<double> const& gate_up, int n) {
  std::vector<double> y(gate_up.size() / 2);
  for (std::size_t i = 0; i < y.size(); ++i) {
    std::size_t const row = i / n, c = i % n;
    y[i] = silu(gate_up[2 * row * n + c]) * gate_up[(2 * row + 1) * n + c];
  }
  return y;
}

TEST_CASE_TEMPLATE("swiglu agrees with its definition in double", Element, double, float, bf16, fp16) {
  Space const space = another_instance();
  int const rows = 3;
  for (int const n : {1, 7, 64, 160, 320, 640, 1408, 2816, 14336, 70001})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 3}}) {
      CAPTURE(n);
      CAPTURE(place.shift);
      auto const x = random_values<Element>(std::size_t(rows) * 2 * n, n, -6, 6);
      GuardedMatrix<Element> const in(rows, 2 * n, x, place), out(rows, n, place);
      swiglu(space, in.const_view(), out.view());
      CHECK(deviation(out.values(), reference(x, n)) <= tolerance<Element>());
      CHECK(out.guards_intact());
      CHECK(in.values() == x);
    }
}

// CASES P30
TEST_CASE("the gate is the first half, not the second and not every other value") {
  auto const x = view_of<float>({1, 2, 3, 4}, 1, 4);
  auto const y = view_of_nans<float>(1, 2);
  swiglu(Space(), x, y);
  CHECK(deviation(download(y), {2.193175736, 7.046376624}) <= 1e-6);
}

TEST_CASE("gate and up as two matrices give the bits that they give as one, also in place") {
  for (int const n : {7, 1408}) {
    int const rows = 4;
    auto const both = view_of<bf16>(random_values<bf16>(std::size_t(rows) * 2 * n, n), rows, 2 * n);
    auto const gate = Kokkos::subview(both, Kokkos::ALL, Kokkos::pair(0, n));
    auto const up = Kokkos::subview(both, Kokkos::ALL, Kokkos::pair(n, 2 * n));
    auto const one = view_of_nans<bf16>(rows, n), two = view_of_nans<bf16>(rows, n);
    swiglu(Space(), both, one);
    swiglu(Space(), gate, up, two);
    CHECK(same_bits(one, two));
    swiglu(Space(), both, up);
    auto const now = download(both), y = download(one);
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < n; ++c) REQUIRE(now[(2 * r + 1) * n + c] == y[r * n + c]);
  }
}

// CASES P09
TEST_CASE("swiglu of no rows writes nothing") {
  swiglu(Space(), view_of_nans<float>(0, 4), view_of_nans<float>(0, 2));
  swiglu(Space(), view_of_nans<float>(4, 0), view_of_nans<float>(4, 0));
}

TEST_CASE("swiglu refuses an odd width and shapes that do not fit, and writes nothing") {
  auto const y = view_of_nans<float>(2, 2);
  CHECK(contains(error_of([&] { swiglu(Space(), view_of_nans<float>(2, 5), y); }),
                 "kfuse::swiglu: gate_up has 5 columns"));
  CHECK(contains(error_of([&] { swiglu(Space(), view_of<float>(std::vector<double>(12, 1), 2, 6), y); }),
                 "store: shape [2, 2] does not match"));
  CHECK(contains(error_of([&] { swiglu(Space(), y, view_of_nans<float>(3, 2), y); }), "multiply: shape [3, 2]"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("swiglu moves its arguments once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 128}, {128, 1}}, y{nullptr, {10, 64}, {64, 1}};
  CHECK(kfuse::swiglu_traffic(Space(), x, y).bytes_read == 10 * 128 * 2);
  CHECK(kfuse::swiglu_traffic(Space(), x, y).bytes_written == 10 * 64 * 2);
}

}  // namespace
