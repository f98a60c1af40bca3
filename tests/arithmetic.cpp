// SPDX-License-Identifier: Apache-2.0
// The functions that backends offer, where stages run and, of what is portable, on the host, against the same in long
// double: over their whole range, at its ends, and beyond.
#include <kfuse/backends/gpu/exponential.hpp>
#include <kfuse/core/row_reduce.hpp>
#include <kfuse/fused/stage/activation.hpp>
#include <kfuse/fused/stage/log_sum_exp.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "random_cases.hpp"
#include "support.hpp"

namespace {

using namespace kfuse::test;

constexpr double infinity = std::numeric_limits<double>::infinity(),
                 nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double largest = std::numeric_limits<double>::max(), smallest = std::numeric_limits<double>::denorm_min();

// f(x) of each, where stages run.
template <class F>
struct Applied {
  Kokkos::View<double*, Kokkos::LayoutRight, Space> x;
  KOKKOS_FUNCTION void operator()(int i) const { x(i) = F()(x(i)); }
};
template <class F>
std::vector<double> applied(F, std::vector<double> const& x) {
  auto const values = view_of<double>(x, int(x.size()));
  Kokkos::parallel_for("kfuse::test::applied", Kokkos::RangePolicy<Space>(0, int(x.size())), Applied<F>{values});
  return download(values);
}

struct BackendExp2 {
  KOKKOS_FUNCTION double operator()(double x) const { return kfuse::backend::exp2(x); }
};
struct BackendExp {
  KOKKOS_FUNCTION double operator()(double x) const { return kfuse::backend::exp(x); }
};
struct PortableExp2 {
  KOKKOS_FUNCTION double operator()(double x) const {
    return kfuse::gpu::exp2(x, [](double f) { return kfuse::backend::polynomial<kfuse::gpu::PowerOfTwo>(f); });
  }
};
struct PortableExp {
  KOKKOS_FUNCTION double operator()(double x) const {
    return kfuse::gpu::exp(x, [](double f) { return kfuse::backend::polynomial<kfuse::gpu::PowerOfTwo>(f); });
  }
};
struct Reciprocal {
  KOKKOS_FUNCTION double operator()(double x) const { return kfuse::backend::reciprocal(x); }
};
struct ReciprocalSqrt {
  KOKKOS_FUNCTION double operator()(double x) const { return kfuse::backend::reciprocal_sqrt(x); }
};
struct UpperTail {
  KOKKOS_FUNCTION double operator()(double x) const { return kfuse::impl::upper_tail(x); }
};

std::vector<double> between(double low, double high, int count) {
  Random random(1);
  std::vector<double> x{low, high};
  for (int i = 0; i < count; ++i) x.push_back(random.between(low, high));
  return x;
}

// The largest |f(x) / expected(x) - 1|.
template <class F, class Expected>
double deviation_of(F const& f, std::vector<double> const& x, Expected const& expected) {
  auto const y = applied(f, x);
  long double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    long double const here = std::abs((long double)(y[i]) / expected((long double)(x[i])) - 1);
    if (!(here <= worst)) worst = here;
    if (std::isnan(worst)) break;  // NaN stays
  }
  return double(worst);
}
struct NaNOfTwo {
  KOKKOS_FUNCTION double operator()(double x) const { return x == 2 ? Kokkos::Experimental::quiet_NaN_v<double> : x; }
};
TEST_CASE("a deviation that is no number is not lost among others") {
  CHECK(std::isnan(deviation_of(NaNOfTwo(), {1, 2, 3}, [](long double v) { return v; })));
}

template <class F>
void check_ends(F const& f, double last, double overflow, double underflow) {
  std::vector<double> const x{overflow, 1e4,       1e15,   1e300,     largest,   infinity, underflow,
                              -1e4,     -1e15,     -1e300, -largest,  -infinity, 0,        -0.0,
                              smallest, -smallest, 1e-300, nan_value, last};
  auto const y = applied(f, x);
  for (int i = 0; i < 6; ++i) CHECK(y[i] == infinity);
  for (int i = 6; i < 12; ++i) CHECK(std::abs(y[i]) <= 0x1p-1021);
  for (int i = 12; i < 17; ++i) CHECK(y[i] == 1);
  CHECK(std::isnan(y[17]));
  CHECK(std::isfinite(y[18]));
  CHECK(y[18] > 1e308);
}

TEST_CASE_TEMPLATE("powers of two in double", F, BackendExp2, PortableExp2) {
  auto const expected = [](long double v) { return std::exp2(v); };
  CHECK(deviation_of(F(), between(-1021, 1023.99, 100000), expected) <= 5e-16);
  CHECK(deviation_of(F(), between(-1, 1, 100000), expected) <= 5e-16);
  std::vector<double> halves;  // between two integers
  for (double k = -1020.5; k < 1024; k += 0.5)
    for (double const near : {k, std::nextafter(k, -infinity), std::nextafter(k, infinity)}) halves.push_back(near);
  CHECK(deviation_of(F(), halves, expected) <= 5e-16);
  check_ends(F(), 1023.99, 1024, -1080);
  for (double const y : applied(F(), between(1024, 2100, 10000))) CHECK(y == infinity);
  for (double const y : applied(F(), between(-2100, -1021.5, 10000))) REQUIRE((y >= 0 && y <= 0x1p-1021));
}
TEST_CASE_TEMPLATE("exponentials in double", F, BackendExp, PortableExp) {
  auto const expected = [](long double v) { return std::exp(v); };
  CHECK(deviation_of(F(), between(-707.7, 709.7, 100000), expected) <= 6e-16);
  CHECK(deviation_of(F(), between(-1, 1, 100000), expected) <= 6e-16);
  check_ends(F(), 709.78, 710, -750);
}
TEST_CASE("reciprocals in double") {
  for (double const scale : {1.0, 0x1p-126, 0x1p126, 0x1p-1021, 0x1p1020, -1.0, -0x1p300}) {
    auto const x = between(scale, 2 * scale, 20000);
    CHECK(deviation_of(Reciprocal(), x, [](long double v) { return 1 / v; }) <= 3e-16);
    if (scale > 0) CHECK(deviation_of(ReciprocalSqrt(), x, [](long double v) { return 1 / std::sqrt(v); }) <= 5e-16);
  }
  auto const roots = applied(ReciprocalSqrt(), {0.0, infinity, 0x1p-1074, 0x1p-1040, largest});
  CHECK(roots[0] == infinity);
  CHECK(roots[1] == 0);
  CHECK(roots[2] == doctest::Approx(0x1p537));
  CHECK(roots[3] == doctest::Approx(0x1p520));
  CHECK(roots[4] == doctest::Approx(0x1p-512));
  CHECK(std::isnan(applied(Reciprocal(), {nan_value})[0]));
}
TEST_CASE("the upper tail of the normal distribution in double, down to the smallest normal number") {
  auto const expected = [](long double t) { return std::erfc(t / std::sqrt(2.0L)) / 2; };
  CHECK(deviation_of(UpperTail(), between(0, 3, 50000), expected) <= 4e-15);
  CHECK(deviation_of(UpperTail(), between(0, 37.5, 50000), expected) <= 4e-15);
  CHECK(applied(UpperTail(), {40.0})[0] <= 0x1p-1022);
}

// What a lane makes of packs one after the other, as rows of one lane are.
TEST_CASE_TEMPLATE("sums of exponentials whose maximum grows slowly, in leaps, or not at all", Real, float, double) {
  using Pack = kfuse::Values<Real, 2, kfuse::Access::single>;
  double const allowed = std::is_same_v<Real, double> ? 1e-14 : 1e-5;
  for (double const step : {0.0, 0.001, 0.1, 0.999, 1.0, 1.001, 3.0, 8.0, 100.0, 1e4, -0.1, -30.0}) {
    CAPTURE(step);
    kfuse::impl::ExponentialSum<Real> sum;
    std::vector<Real> values;
    for (int i = 0; i < 400; ++i) {
      Pack pack{{Real(step * i), Real(step * i - 1)}};
      if (i % 2 == 1) std::swap(pack[0], pack[1]);  // the largest is not always the first
      kfuse::impl::add_exponentials(sum, pack);
      values.insert(values.end(), pack.begin(), pack.end());
    }
    long double const high = *std::max_element(values.begin(), values.end());
    long double total = 0;
    for (Real const v : values) total += std::exp((long double)(v)-high);
    double const logarithm = double(sum.reference - high + std::log((long double)(sum.shares.sum)));
    CHECK(std::abs(logarithm - double(std::log(total))) <= allowed);
    CHECK(double(high) - double(sum.reference) <= (std::is_same_v<Real, double> ? 0.35 : 0));
  }
}
TEST_CASE_TEMPLATE("sums of exponentials with infinities, of nothing, and of NaN", Real, float, double) {
  using Pack = kfuse::Values<Real, 2, kfuse::Access::single>;
  Real const inf = std::numeric_limits<Real>::infinity();
  auto const sum_of = [](std::vector<Pack> const& packs) {
    kfuse::impl::ExponentialSum<Real> sum;
    for (Pack const& pack : packs) kfuse::impl::add_exponentials(sum, pack);
    return sum;
  };
  CHECK(sum_of({{{-inf, -inf}}}).shares.sum == 0);
  auto const two = sum_of({{{-inf, -inf}}, {{-inf, 5}}, {{5, -inf}}});
  CHECK(two.shares.sum * std::exp(two.reference - 5) == doctest::Approx(2).epsilon(1e-15));
  CHECK(std::isnan(sum_of({{{0, 1}}, {{Real(NAN), 1}}, {{200, 1}}}).shares.sum));
  CHECK(std::isnan(sum_of({{{0, 1}}, {{inf, 1}}, {{200, 1}}}).shares.sum));
  // Whose references differ, however they are merged.
  auto a = sum_of({{{0, Real(0.75)}}}), b = sum_of({{{Real(0.75), 0}}}), turned = b;
  kfuse::impl::merge(kfuse::LogSoftmax(), turned, a);
  kfuse::impl::merge(kfuse::LogSoftmax(), a, b);
  double const total = double(a.shares.sum) * std::exp(double(a.reference)), expected = 2 * (1 + std::exp(0.75));
  CHECK(std::abs(total / expected - 1) <= (std::is_same_v<Real, double> ? 1e-15 : 1e-6));
  CHECK((a.reference == turned.reference && a.shares.sum == turned.shares.sum));
}

}  // namespace
