// SPDX-License-Identifier: Apache-2.0
// Element types: every code and every rounding, on the host and on the device, against the definition of the formats.
#include <kfuse/core/values.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "support.hpp"

namespace {

using namespace kfuse::test;
using kfuse::bf16, kfuse::fp16, kfuse::fp8_e4m3, kfuse::fp8_e5m2;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

// The formats, as their standards define them.
template <class Element>
struct Definition;
template <>
struct Definition<bf16> {
  static constexpr int exponent = 8, mantissa = 7;
  static constexpr bool has_infinity = true;
};
template <>
struct Definition<fp16> {
  static constexpr int exponent = 5, mantissa = 10;
  static constexpr bool has_infinity = true;
};
template <>
struct Definition<fp8_e4m3> {
  static constexpr int exponent = 4, mantissa = 3;
  static constexpr bool has_infinity = false;
};
template <>
struct Definition<fp8_e5m2> {
  static constexpr int exponent = 5, mantissa = 2;
  static constexpr bool has_infinity = true;
};

template <class Element>
constexpr unsigned codes = 1u << (8 * sizeof(Element));
template <class Element>
constexpr unsigned sign_bit = codes<Element> / 2;
template <class Element>
Element element(unsigned code) {
  return {decltype(Element::bits)(code)};
}

// The number that a code without its sign stands for. With `all_finite`, as if the format had no infinity and no NaN.
template <class Element>
double magnitude(unsigned code, bool all_finite = false) {
  using D = Definition<Element>;
  int const bias = (1 << (D::exponent - 1)) - 1, top = (1 << D::exponent) - 1;
  int const e = int(code >> D::mantissa), m = int(code & ((1u << D::mantissa) - 1));
  if (!all_finite && D::has_infinity && e == top) return m == 0 ? infinity : nan_value;
  if (!all_finite && !D::has_infinity && e == top && m == (1 << D::mantissa) - 1) return nan_value;
  if (e == 0) return std::ldexp(m, 1 - bias - D::mantissa);
  return std::ldexp((1 << D::mantissa) + m, e - bias - D::mantissa);
}
template <class Element>
double value(unsigned code) {
  double const v = magnitude<Element>(code % sign_bit<Element>);
  return code >= sign_bit<Element> ? -v : v;
}

// The code nearest to x, ties to the even one, found among all of them; what rounds beyond the largest is given the
// code that follows it: infinity, or the NaN of a format without. NaN gives -1.
template <class Element>
long nearest(double x) {
  if (std::isnan(x)) return -1;
  unsigned const sign = std::signbit(x) ? sign_bit<Element> : 0;
  static std::vector<double> const values = [] {
    std::vector<double> all{0};
    while (std::isfinite(magnitude<Element>(unsigned(all.size() - 1))))
      all.push_back(magnitude<Element>(unsigned(all.size()), true));
    return all;
  }();
  auto const overflow = unsigned(values.size() - 1);
  double const distance = std::abs(x);
  auto const above = unsigned(std::lower_bound(values.begin(), values.end(), distance) - values.begin());
  unsigned code = std::min(above, overflow);
  if (above > 0 && above <= overflow) {
    double const up = values[above] - distance, down = distance - values[above - 1];
    if (down < up || (down == up && above % 2 == 1)) code = above - 1;
  }
  return std::isnan(magnitude<Element>(code)) ? -1 : long(sign | code);
}

template <class Element>
long code_of(Element x) {
  return std::isnan(value<Element>(x.bits)) ? -1 : long(x.bits);
}

// All codes, what lies half way between them, what lies next to that, and floats of every kind.
template <class Element>
std::vector<float> awkward_floats() {
  std::vector<float> all{0.0f,
                         -0.0f,
                         infinity,
                         -infinity,
                         nan_value,
                         -nan_value,
                         FLT_MAX,
                         -FLT_MAX,
                         1e38f,
                         1e-38f,
                         FLT_TRUE_MIN,
                         -FLT_MIN,
                         std::nextafter(1.f, 2.f)};
  for (unsigned code = 0; code + 1 < sign_bit<Element>; ++code) {
    double const low = magnitude<Element>(code, true), high = magnitude<Element>(code + 1, true);
    auto const half = float(low + (high - low) / 2);
    for (float x : {float(low), half, std::nextafter(half, 0.0f), std::nextafter(half, infinity)})
      if (std::isfinite(x)) all.insert(all.end(), {x, -x});
  }
  std::uint32_t bits = 1;
  for (int i = 0; i < 20000; ++i) {
    bits = bits * 1664525u + 1013904223u;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    all.push_back(x);
  }
  while (all.size() % 8 != 0) all.push_back(0);
  return all;
}

template <class Element>
struct Widen {
  Kokkos::View<Element const*, Space> from;
  Kokkos::View<float*, Space> to;
  KOKKOS_FUNCTION void operator()(int i) const { to(i) = kfuse::to_real(from(i)); }
};
// One by one, and as kernels store packs.
template <class Element, class Real>
struct Narrow {
  Kokkos::View<Real const*, Space> from;
  Kokkos::View<Element*, Space> one_by_one, in_packs;
  KOKKOS_FUNCTION void operator()(int pack) const {
    kfuse::Values<Real, 8, kfuse::Access::wide> values;
    for (int i = 0; i < 8; ++i) {
      values[i] = from(8 * pack + i);
      one_by_one(8 * pack + i) = kfuse::from_real<Element>(values[i]);
    }
    kfuse::write(in_packs.data() + 8 * pack, values);
  }
};

// How many of the numbers, 8 n of them, the device rounds otherwise than the host, one by one or in packs.
template <class Element, class Real>
int narrowed_otherwise(Space const& space, std::vector<Real> const& numbers) {
  Kokkos::View<Real*, Space> const wide("numbers", numbers.size());
  Kokkos::View<Element*, Space> const one_by_one("one by one", numbers.size()), in_packs("in packs", numbers.size());
  set_elements(wide, numbers);
  for (auto const& output : {one_by_one, in_packs})
    set_elements(output, std::vector<Element>(numbers.size(), element<Element>(0x55)));
  Kokkos::parallel_for("narrow", Kokkos::RangePolicy<Space>(space, 0, int(numbers.size() / 8)),
                       Narrow<Element, Real>{wide, one_by_one, in_packs});
  space.fence();
  auto const singles = elements(one_by_one), packs = elements(in_packs);
  int wrong = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    long const expected = code_of(kfuse::from_real<Element>(numbers[i]));
    wrong += code_of(singles[i]) != expected;
    wrong += code_of(packs[i]) != expected;
  }
  return wrong;
}

}  // namespace

TEST_CASE("elements have the sizes of their formats on every backend") {
  CHECK(sizeof(bf16) == 2);
  CHECK(sizeof(fp16) == 2);
  CHECK(sizeof(fp8_e4m3) == 1);
  CHECK(sizeof(fp8_e5m2) == 1);
  CHECK(std::is_same_v<kfuse::Real<double>, double>);
  CHECK(std::is_same_v<kfuse::Real<bf16>, float>);
  CHECK(std::string(name(kfuse::element_type<fp8_e4m3>)) == "fp8_e4m3");
}

TEST_CASE_TEMPLATE("every code has the value its format defines, and comes back from it", Element, bf16, fp16, fp8_e4m3,
                   fp8_e5m2) {
  int wrong = 0;
  for (unsigned code = 0; code < codes<Element>; ++code) {
    float const x = kfuse::to_real(element<Element>(code));
    auto const defined = float(value<Element>(code));
    bool const both_nan = std::isnan(x) && std::isnan(defined);
    wrong += !(both_nan || (x == defined && std::signbit(x) == std::signbit(defined)));
    wrong += code_of(kfuse::from_real<Element>(x)) != code_of(element<Element>(code));
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("numbers are rounded to the nearest code, ties to the even one", Element, bf16, fp16, fp8_e4m3,
                   fp8_e5m2) {
  int wrong = 0;
  for (float x : awkward_floats<Element>()) wrong += code_of(kfuse::from_real<Element>(x)) != nearest<Element>(x);
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("doubles are rounded once, not to float before", Element, bf16, fp16, fp8_e4m3, fp8_e5m2) {
  int wrong = 0;
  for (float f : awkward_floats<Element>()) {
    double const x = f;
    for (double y : {x, std::nextafter(x, 2 * x), std::nextafter(x, x / 2)})
      wrong += code_of(kfuse::from_real<Element>(y)) != nearest<Element>(y);
  }
  CHECK(wrong == 0);
  CHECK(code_of(kfuse::from_real<Element>(1e300)) == nearest<Element>(1e300));
  CHECK(code_of(kfuse::from_real<Element>(-1e-300)) == nearest<Element>(-1e-300));
}

TEST_CASE_TEMPLATE("the device converts as the host does", Element, bf16, fp16, fp8_e4m3, fp8_e5m2) {
  Space const space = another_instance();
  std::vector<Element> all;
  for (unsigned code = 0; code < codes<Element>; ++code) all.push_back(element<Element>(code));
  Kokkos::View<Element*, Space> const given("codes", all.size());
  Kokkos::View<float*, Space> const widened("floats", all.size());
  set_elements(given, all);
  upload(widened, std::vector<double>(all.size(), nan_value));
  Kokkos::parallel_for("widen", Kokkos::RangePolicy<Space>(space, 0, int(all.size())), Widen<Element>{given, widened});
  space.fence();
  auto const on_device = elements(widened);
  int wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    float const x = kfuse::to_real(all[i]);
    wrong += std::isnan(x) ? !std::isnan(on_device[i]) : std::memcmp(&x, &on_device[i], sizeof x) != 0;
  }
  CHECK(wrong == 0);

  auto const floats = awkward_floats<Element>();
  std::vector<double> doubles;  // those that a float in between would round a second time, too
  for (double const x : floats) doubles.insert(doubles.end(), {x, std::nextafter(x, 2 * x), std::nextafter(x, x / 2)});
  CHECK(narrowed_otherwise<Element>(space, floats) == 0);
  CHECK(narrowed_otherwise<Element>(space, doubles) == 0);
}

TEST_CASE("bf16 rounds the values that truncation gets wrong") {
  auto const round = [](float x) { return kfuse::to_real(kfuse::from_real<bf16>(x)); };
  CHECK(round(0.26914087702f) == 0.26953125f);
  CHECK(round(3.14f) == 3.140625f);
  CHECK(round(1.00390625f) == 1.0f);
  CHECK(round(1.01171875f) == 1.015625f);
  CHECK(round(1.0f + 0.005859375f) == 1.0078125f);
  CHECK(round(FLT_MAX) == infinity);
  CHECK(round(3.38953139e38f) == 3.38953139e38f);
  CHECK(std::isnan(round(Kokkos::bit_cast<float>(std::uint32_t(0x7F800001)))));
}

TEST_CASE("E4M3 has 254 finite codes, one NaN of each sign and no infinity") {
  auto const widen = [](unsigned code) { return kfuse::to_real(element<fp8_e4m3>(code)); };
  CHECK(widen(0x00) == 0.0f);
  CHECK(!std::signbit(widen(0x00)));
  CHECK(std::signbit(widen(0x80)));
  CHECK(widen(0x01) == 0.001953125f);
  CHECK(widen(0x07) == 0.013671875f);
  CHECK(widen(0x08) == 0.015625f);
  CHECK(widen(0x38) == 1.0f);
  CHECK(widen(0x7E) == 448.0f);
  CHECK(widen(0xFE) == -448.0f);
  CHECK(std::isnan(widen(0x7F)));
  CHECK(std::isnan(widen(0xFF)));
  int finite = 0;
  double positive = 0;
  for (unsigned code = 0; code < 256; ++code) {
    if (!std::isfinite(widen(code))) continue;
    ++finite;
    positive += std::max(0.0f, widen(code));
  }
  CHECK(finite == 254);
  CHECK(positive == 5407.875);
}
