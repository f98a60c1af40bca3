// SPDX-License-Identifier: Apache-2.0
#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/load_store.hpp>
#include <kfuse/fused/stage/sum_into.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <numeric>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::impl::SumInto;
using namespace kfuse::test;

template <class Real>
double sum_of(std::vector<double> const& x, double const* divisor = nullptr) {
  auto const row = view_of<Real>(x, 1, int(x.size()));
  auto const to = view_of_nans<Real>(1), by = view_of<Real>({divisor ? *divisor : 0}, 1);
  fuse(Space(), "test", kfuse::load(row) | SumInto<Real>(to.data(), divisor ? by.data() : nullptr));
  return download(to)[0];
}

TEST_CASE_TEMPLATE("a sum of very many numbers has all digits of its type", Real, double, float) {
  for (int const n : {1, 7, 1000, 1 << 21}) {
    CAPTURE(n);
    double const one = rounded<Real>(0.3), count = n;
    auto const random = random_values<Real>(n, 1, 0, 20);
    double const of_random = double(std::accumulate(random.begin(), random.end(), 0.0L));
    auto const check = [&](std::vector<double> const& x, double expected) {
      CHECK(deviation({sum_of<Real>(x)}, {expected}) <= ulp<Real>(1));
      CHECK(deviation({sum_of<Real>(x, &count)}, {expected / n}) <= 2 * ulp<Real>(1));
    };
    check(std::vector<double>(n, one), n * one);
    check(random, of_random);
  }
}

TEST_CASE("the mean of nothing is 0, and a sum may be infinite") {
  double const none = 0, infinity = std::numeric_limits<double>::infinity();
  CHECK(sum_of<float>({0, 0}, &none) == 0);
  CHECK(sum_of<float>({1, infinity}) == infinity);
  CHECK(sum_of<double>({1, infinity}) == infinity);
}

}  // namespace
