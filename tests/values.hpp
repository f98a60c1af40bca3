// SPDX-License-Identifier: Apache-2.0
// Values that can be had again, rounded as element types round them, and transfers between host and device.
#ifndef KFUSE_TESTS_VALUES_HPP
#define KFUSE_TESTS_VALUES_HPP

#include <kfuse/core/element.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

namespace kfuse::test {

using Space = Kokkos::DefaultExecutionSpace;

// An instance of Space that is not the default one: an operator that works on the wrong one is found by the tools' and
// the sanitizers' runs.
inline Space another_instance() {
  return Kokkos::Experimental::partition_space(Space(), 1)[0];
}

// Explicit mantissa bits and the smallest normal exponent, from which rounding follows.
template <class Element>
struct Format;
template <>
struct Format<double> {
  static constexpr int mantissa = 52, min_exponent = -1022;
};
template <>
struct Format<float> {
  static constexpr int mantissa = 23, min_exponent = -126;
};
template <>
struct Format<bf16> {
  static constexpr int mantissa = 7, min_exponent = -126;
};
template <>
struct Format<fp16> {
  static constexpr int mantissa = 10, min_exponent = -14;
};
template <>
struct Format<fp8_e4m3> {
  static constexpr int mantissa = 3, min_exponent = -6;
};
template <>
struct Format<fp8_e5m2> {
  static constexpr int mantissa = 2, min_exponent = -14;
};

// The distance between neighbours of Element around x.
template <class Element>
double ulp(double x) {
  int const exponent = x == 0 ? Format<Element>::min_exponent : std::ilogb(x);
  return std::ldexp(1.0, std::max(exponent, Format<Element>::min_exponent) - Format<Element>::mantissa);
}
// x rounded to the nearest value of Element, ties to even; written without the library's conversions. Overflow is not
// looked at.
template <class Element>
double rounded(double x) {
  if (x == 0 || !std::isfinite(x) || std::same_as<Element, double>) return x;
  double const unit = ulp<Element>(x);
  return std::nearbyint(x / unit) * unit;
}
template <class Element>
std::vector<double> rounded(std::vector<double> x) {
  for (double& v : x) v = rounded<Element>(v);
  return x;
}

// The largest finite number of an element type with infinities.
template <class Element>
double largest() {
  return std::ldexp(2 - std::ldexp(1.0, -Format<Element>::mantissa), 1 - Format<Element>::min_exponent);
}

// What a result is compared with: the definition in double, rounded.
template <class Element>
double rounded_or_infinite(double x) {
  double const nearest = rounded<Element>(x);
  return std::abs(nearest) > largest<Element>() ? std::copysign(std::numeric_limits<double>::infinity(), x) : nearest;
}

// Numbers that are the same for the same seed on every machine (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * step) {}
  std::uint64_t bits() {
    std::uint64_t z = state_ += step;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // Spread evenly over [low, high), and over 0 ... count - 1.
  double between(double low, double high) { return low + (high - low) * (double(bits() >> 11) * 0x1p-53); }
  int below(int count) { return int(bits() % std::uint64_t(count)); }

 private:
  static constexpr std::uint64_t step = 0x9E3779B97F4A7C15u;
  std::uint64_t state_;
};

// n values spread evenly over [low, high).
inline std::vector<double> random_values(std::size_t n, std::uint64_t seed, double low = -2, double high = 2) {
  Random random(seed);
  std::vector<double> values(n);
  for (double& v : values) v = random.between(low, high);
  return values;
}
// The same, rounded to Element: what a View of it holds exactly.
template <class Element>
std::vector<double> random_values(std::size_t n, std::uint64_t seed, double low = -2, double high = 2) {
  return rounded<Element>(random_values(n, seed, low, high));
}

template <class Element>
Element encode(double x) {
  if constexpr (std::integral<Element>)
    return Element(x);
  else
    return from_real<Element>(x);
}
template <class Element>
double decode(Element x) {
  if constexpr (std::integral<Element>)
    return double(x);
  else
    return double(to_real(x));
}

// The elements of a contiguous View, in memory order, and back. Both wait for all work on all instances.
template <class View>
auto elements(View const& view) {
  using Element = typename View::non_const_value_type;
  std::vector<Element> host(view.size());
  Kokkos::fence("kfuse::test::elements");
  Kokkos::deep_copy(
      Kokkos::View<Element*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(host.data(), host.size()),
      Kokkos::View<Element const*, typename View::memory_space, Kokkos::MemoryUnmanaged>(view.data(), view.size()));
  return host;
}
template <class View>
void set_elements(View const& view, std::vector<typename View::non_const_value_type> const& host) {
  using Element = typename View::non_const_value_type;
  if (host.size() != view.size()) throw std::length_error("kfuse::test: values and View differ in size");
  Kokkos::fence("kfuse::test::set_elements");
  Kokkos::deep_copy(
      Kokkos::View<Element*, typename View::memory_space, Kokkos::MemoryUnmanaged>(view.data(), view.size()),
      Kokkos::View<Element const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(host.data(), host.size()));
}

// The same as doubles.
template <class View>
std::vector<double> download(View const& view) {
  auto const host = elements(view);
  std::vector<double> values(host.size());
  std::transform(host.begin(), host.end(), values.begin(), [](auto x) { return decode(x); });
  return values;
}
template <class View>
void upload(View const& view, std::vector<double> const& values) {
  using Element = typename View::non_const_value_type;
  std::vector<Element> host(values.size());
  std::transform(values.begin(), values.end(), host.begin(), [](double x) { return encode<Element>(x); });
  set_elements(view, host);
}

template <class Element, int rank>
struct DataType {
  using type = typename DataType<Element, rank - 1>::type*;
};
template <class Element>
struct DataType<Element, 0> {
  using type = Element;
};

// A new row-major View on Space of the given values, or of NaNs.
template <class Element, std::integral... Extent>
auto view_of(std::vector<double> const& values, Extent... extents) {
  Kokkos::View<typename DataType<Element, sizeof...(Extent)>::type, Kokkos::LayoutRight, Space> const view(
      "kfuse::test::view", std::size_t(extents)...);
  upload(view, values);
  return view;
}
template <class Element, std::integral... Extent>
auto view_of_nans(Extent... extents) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  return view_of<Element>(std::vector<double>((std::size_t(extents) * ... * 1), nan), extents...);
}

}  // namespace kfuse::test

#endif
