// SPDX-License-Identifier: Apache-2.0
// The functions that backends offer, where stages run and, of what is portable, on the host, against the same in long
// double: over their whole range, at its ends, and beyond.
#include <kfuse/backends/gpu/exponential.hpp>
#include <kfuse/fused/stage/activation.hpp>
#include <kfuse/fused/stage/log_sum_exp.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
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
    return kfuse::gpu::exp2(x, kfuse::backend::polynomial<kfuse::gpu::PowerOfTwo>);
  }
};
struct PortableExp {
  KOKKOS_FUNCTION double operator()(double x) const {
    return kfuse::gpu::exp(x, kfuse::backend::polynomial<kfuse::gpu::PowerOfTwo>);
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
    worst = here <= worst ? worst : here;  // NaN stays
  }
  return double(worst);
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
}
TEST_CASE_TEMPLATE("exponentials in double", F, BackendExp, PortableExp) {
  auto const expected = [](long double v) { return std::exp(v); };
  CHECK(deviation_of(F(), between(-707.7, 709.7, 100000), expected) <= 6e-16);
  CHECK(deviation_of(F(), between(-1, 1, 100000), expected) <= 6e-16);
  check_ends(F(), 709.78, 710, -750);
}
TEST_CASE("reciprocals in double") {
  for (double const scale : {1.0, 0x1p-126, 0x1p126}) {
    auto const x = between(scale, 2 * scale, 50000);
    CHECK(deviation_of(Reciprocal(), x, [](long double v) { return 1 / v; }) <= 3e-16);
    CHECK(deviation_of(ReciprocalSqrt(), x, [](long double v) { return 1 / std::sqrt(v); }) <= 5e-16);
  }
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
  for (double const step : {0.0, 0.001, 0.1, 3.0, 7.999, 8.0, 8.001, 100.0, 1e4, -0.1, -30.0}) {
    CAPTURE(step);
    kfuse::impl::ExponentialSum<Real> sum;
    std::vector<Real> values;
    for (int i = 0; i < 400; ++i) {
      Pack const pack{{Real(step * i), Real(step * i - 1)}};
      kfuse::impl::add_exponentials(sum, pack);
      values.insert(values.end(), pack.begin(), pack.end());
    }
    long double const high = *std::max_element(values.begin(), values.end());
    long double total = 0;
    for (Real const v : values) total += std::exp((long double)(v)-high);
    double const logarithm = double(sum.high - high + std::log((long double)(sum.sum)));
    CHECK(std::abs(logarithm - double(std::log(total))) <= allowed);
    CHECK(double(high) - double(sum.high) <= (std::is_same_v<Real, double> ? 8 : 0));
  }
}

}  // namespace
