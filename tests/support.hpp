// SPDX-License-Identifier: Apache-2.0
// What tests share: values that can be had again, transfers between host and device, comparison in double, and
// matrices whose surroundings are watched.
#ifndef KFUSE_TESTS_SUPPORT_HPP
#define KFUSE_TESTS_SUPPORT_HPP

#include <kfuse/core/check.hpp>
#include <kfuse/core/element.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
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

// n values spread evenly over [low, high), the same for the same seed on every machine (splitmix64).
inline std::vector<double> random_values(std::size_t n, std::uint64_t seed, double low = -2, double high = 2) {
  std::vector<double> values(n);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u;
  for (double& v : values) {
    std::uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    v = low + (high - low) * (double((z ^ (z >> 31)) >> 11) * 0x1p-53);
  }
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

// How a guarded matrix lies: `shift` elements after a 256-byte boundary, `gap` elements between its rows.
struct Place2D {
  int shift = 0, gap = 0;
};

// A matrix in memory that is otherwise filled with NaNs (bytes 0xff): what is read beyond its edges spoils a result,
// what is written there is found by guards_intact(). Without values it holds such NaNs itself.
template <class Element>
class GuardedMatrix {
 public:
  GuardedMatrix(int rows, int columns, Place2D place = {})
      : rows_(rows),
        columns_(columns),
        stride_(columns + place.gap),
        first_(guard / sizeof(Element) + place.shift),
        buffer_("kfuse::test::guarded", first_ + std::size_t(rows) * stride_ + guard / sizeof(Element)) {
    set_elements(bytes(), std::vector<std::uint8_t>(bytes().size(), 0xff));
  }
  GuardedMatrix(int rows, int columns, std::vector<double> const& values, Place2D place = {})
      : GuardedMatrix(rows, columns, place) {
    set(values);
  }

  auto view() const {
    return Kokkos::View<Element**, Kokkos::LayoutStride, Space>(
        buffer_.data() + first_, Kokkos::LayoutStride(std::size_t(rows_), stride_, std::size_t(columns_), 1));
  }
  auto const_view() const { return Kokkos::View<Element const**, Kokkos::LayoutStride, Space>(view()); }

  void set(std::vector<double> const& values) const {
    auto all = elements(buffer_);
    for (std::size_t i = 0; i < values.size(); ++i) all[place_of(i)] = encode<Element>(values[i]);
    set_elements(buffer_, all);
  }
  // Row by row, without what lies between.
  std::vector<double> values() const {
    auto const all = download(buffer_);
    std::vector<double> inside(std::size_t(rows_) * columns_);
    for (std::size_t i = 0; i < inside.size(); ++i) inside[i] = all[place_of(i)];
    return inside;
  }
  bool guards_intact() const {
    auto all = elements(bytes());
    for (std::size_t i = 0; i < std::size_t(rows_) * columns_; ++i)
      std::fill_n(all.begin() + place_of(i) * sizeof(Element), sizeof(Element), 0xff);
    return std::all_of(all.begin(), all.end(), [](std::uint8_t b) { return b == 0xff; });
  }

 private:
  static constexpr std::size_t guard = 256;  // bytes

  std::size_t place_of(std::size_t i) const { return first_ + i / columns_ * stride_ + i % columns_; }
  auto bytes() const {
    return Kokkos::View<std::uint8_t*, Space, Kokkos::MemoryUnmanaged>(reinterpret_cast<std::uint8_t*>(buffer_.data()),
                                                                       buffer_.size() * sizeof(Element));
  }

  int rows_, columns_;
  std::size_t stride_, first_;
  Kokkos::View<Element*, Space> buffer_;
};

// The relative error a result may have: rounding to Element, and the float (or double) arithmetic before it.
template <class Element>
constexpr double tolerance() {
  if constexpr (std::same_as<Element, double>)
    return 1e-12;
  else if constexpr (std::same_as<Element, float>)
    return 1e-5;
  else
    return 1.02 / double(2 << Format<Element>::mantissa);
}

// The largest difference relative to max(|expected|, floor). NaN on one side only wins over every number; infinities
// must be equal.
inline double deviation(std::vector<double> const& actual, std::vector<double> const& expected, double floor = 1e-2) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
    double const d = std::abs(actual[i] - expected[i]) / std::max(std::abs(expected[i]), floor);
    if (!(d <= largest)) largest = d;
    if (std::isnan(largest)) break;
  }
  return largest;
}

// Compares whole values, NaNs included, without numbers: the bits.
template <class A, class B>
bool same_bits(A const& a, B const& b) {
  auto const x = elements(a), y = elements(b);
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0;
}

// What `call` throws, as text; empty if it does not throw a kfuse::Error.
template <class Call>
std::string error_of(Call const& call) {
  try {
    call();
  } catch (Error const& error) {
    return error.what();
  }
  return {};
}
inline bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace kfuse::test

#endif
