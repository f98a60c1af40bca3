// SPDX-License-Identifier: Apache-2.0
// Products and the sums after them are rounded each on their own, also where the processor could do both at once and
// round once. CMake builds this file a second time for such a processor.
#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/rope.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "support.hpp"

namespace {

using namespace kfuse::test;

TEST_CASE_TEMPLATE("a product is rounded before the sum", Real, float, double) {
  constexpr int n = 1000;  // enough to vectorise
  std::vector<Real> a, b, c, sum(n), lanes(8);
  Random random(1);
  for (int i = 0; i < n; ++i) {
    a.push_back(Real(random.between(-2, 2)));
    b.push_back(Real(random.between(-2, 2)));
    c.push_back(Real(-a[i] * b[i] * random.between(0.5, 2)));  // most of the product's digits cancel
  }
  for (int i = 0; i < n; ++i) sum[i] = kfuse::backend::add(a[i] * b[i], c[i]);
  for (int i = 0; i < 8; ++i) lanes[i] = kfuse::backend::add(c[i], a[i] * b[i]);
  int wrong = 0;
  for (int i = 0; i < n; ++i) {
    Real const volatile product = a[i] * b[i];
    Real const volatile expected = product + c[i];
    wrong += sum[i] != expected || (i < 8 && lanes[i] != expected);
  }
  CHECK(wrong == 0);
}

// README: sums at the edges of stages.
TEST_CASE_TEMPLATE("stages have the same bits in one kernel and in several", Element, float, double) {
  using namespace kfuse;
  int const rows = 5;
  for (int const columns : {7, 64, 1001}) {
    auto const matrix = [&](int seed) {
      return view_of<Element>(random_values<Element>(std::size_t(rows) * columns, seed), rows, columns);
    };
    auto const x = matrix(1), r = matrix(2), together = view_of_nans<Element>(rows, columns);
    auto const product = view_of_nans<Element>(rows, columns), apart = view_of_nans<Element>(rows, columns);
    fuse(Space(), "test", load(x) | scale(0.1) | add(r) | store(together));
    fuse(Space(), "test", load(x) | scale(0.1) | store(product));
    fuse(Space(), "test", load(product) | add(r) | store(apart));
    CHECK(same_bits(together, apart));
  }
}

// Of a sum of two products a compiler may join either, in one kernel this and in another that.
TEST_CASE_TEMPLATE("rope rounds both products before their sum, in whole packs and out of them", Element, float,
                   double) {
  using namespace kfuse;
  int const tokens = 7;
  for (int const dim : {2, 6, 64, 130})
    for (RopePairs const pairs : {RopePairs::half, RopePairs::interleaved}) {
      CAPTURE(dim);
      int const half = dim / 2;
      auto const values = random_values<Element>(std::size_t(tokens) * dim, dim);
      std::vector<double> angles, positions;
      for (int t = 0; t < tokens; ++t) {
        positions.push_back(t);
        for (int i = 0; i < dim; ++i) angles.push_back(rounded<Element>(std::sin(1 + 3 * t + 1.7 * i)));
      }
      Kokkos::View<Element***, Kokkos::LayoutRight, Space> const q("q", tokens, 1, dim), k("k", tokens, 0, dim);
      auto const flat = Kokkos::View<Element**, Kokkos::LayoutRight, Space>(q.data(), tokens, dim);
      Kokkos::deep_copy(flat, view_of<Element>(values, tokens, dim));
      rope(Space(), q, k, view_of<Element>(angles, tokens, dim), view_of<int>(positions, tokens), {.pairs = pairs});
      auto const turned = download(flat);
      auto const by_stage = view_of_nans<Element>(tokens, dim);  // the same as a stage, whose pairs are other places
      fuse(Space(), "test",
           load(view_of<Element>(values, tokens, dim)) |
               rope(view_of<Element>(angles, tokens, dim), view_of<int>(positions, tokens),
                    {.head_dim = dim, .pairs = pairs}) |
               store(by_stage));
      CHECK(download(by_stage) == turned);
      int wrong = 0;
      for (int t = 0; t < tokens; ++t)
        for (int i = 0; i < half; ++i) {
          bool const halves = pairs == RopePairs::half;
          int const row = t * dim, a = row + (halves ? i : 2 * i), b = row + (halves ? i + half : 2 * i + 1);
          auto const cosine = Element(angles[row + i]), sine = Element(angles[row + half + i]);
          Element const volatile first[2] = {Element(values[a]) * cosine, Element(values[b]) * sine};
          Element const volatile second[2] = {Element(values[b]) * cosine, Element(values[a]) * sine};
          Element const volatile expected[2] = {first[0] - first[1], second[0] + second[1]};
          wrong += Element(turned[a]) != expected[0] || Element(turned[b]) != expected[1];
        }
      CHECK(wrong == 0);
    }
}

}  // namespace
