// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/geglu.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::fp16;
using kfuse::geglu;
using namespace kfuse::test;

// The definition: rows are [gate | up], y = gelu(gate) * up, gelu(x) = x / 2 (1 + erf(x / sqrt(2)))
std::vector<double> reference(std::vector<double> const& gate_up, int rows, int n) {
  std::vector<double> y(std::size_t(rows) * n);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < n; ++c) {
      double const gate = gate_up[std::size_t(2 * r) * n + c], up = gate_up[std::size_t(2 * r + 1) * n + c];
      y[std::size_t(r) * n + c] = gate / 2 * (1 + std::erf(gate / std::sqrt(2.0))) * up;
    }
  return y;
}

TEST_CASE_TEMPLATE("geglu agrees with its definition in double", Element, double, float, bf16, fp16) {
  Space const space = another_instance();
  int const rows = 3;
  for (int const n : {1, 7, 64, 320, 1408, 14336, 70001})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 3}}) {
      CAPTURE(n);
      CAPTURE(place.shift);
      auto const x = random_values<Element>(std::size_t(rows) * 2 * n, n, -6, 6);
      GuardedMatrix<Element> const in(rows, 2 * n, x, place), out(rows, n, place);
      geglu(space, in.const_view(), out.view());
      CHECK(deviation(out.values(), reference(x, rows, n)) <= tolerance<Element>());
      CHECK(out.guards_intact());
      CHECK(in.values() == x);
    }
}

// CASES P30
TEST_CASE("geglu's gate is the first half, not the second and not every other value") {
  auto const y = view_of_nans<float>(1, 2);
  geglu(Space(), view_of<float>({1, 2, 3, 4}, 1, 4), y);
  CHECK(deviation(download(y), {2.524034238, 7.817998944}) <= 1e-6);
}

TEST_CASE("geglu of gate and up as two matrices gives the bits that it gives of one") {
  int const rows = 4, n = 1408;
  auto const both = view_of<bf16>(random_values<bf16>(std::size_t(rows) * 2 * n, n), rows, 2 * n);
  auto const one = view_of_nans<bf16>(rows, n), two = view_of_nans<bf16>(rows, n);
  geglu(Space(), both, one);
  geglu(Space(), Kokkos::subview(both, Kokkos::ALL, Kokkos::pair(0, n)),
        Kokkos::subview(both, Kokkos::ALL, Kokkos::pair(n, 2 * n)), two);
  CHECK(same_bits(one, two));
}

TEST_CASE("geglu refuses an odd width and shapes that do not fit, and writes nothing") {
  auto const y = view_of_nans<float>(2, 2);
  CHECK(
      contains(error_of([&] { geglu(Space(), view_of_nans<float>(2, 3), y); }), "kfuse::geglu: gate_up has 3 columns"));
  CHECK(contains(error_of([&] { geglu(Space(), y, view_of_nans<float>(3, 2), y); }), "multiply: shape [3, 2]"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("geglu moves its arguments once") {
  kfuse::Tensor<bf16, 2> const y{nullptr, {10, 64}, {64, 1}};
  CHECK(kfuse::geglu_traffic(Space(), y, y, y).bytes() == 3 * 10 * 64 * 2);
}

}  // namespace
