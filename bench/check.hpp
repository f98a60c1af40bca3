// SPDX-License-Identifier: Apache-2.0
// Holds results against their definition and against each other, before anything is timed.
#ifndef KFUSE_BENCH_CHECK_HPP
#define KFUSE_BENCH_CHECK_HPP

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench.hpp"
#include <fmt/format.h>

namespace bench {

inline std::size_t element_bytes(kfuse::ElementType type) {
  return with_element(type, []<class Element>(std::type_identity<Element>) { return sizeof(Element); });
}

// The bytes of a result, on the host.
using Snapshot = std::vector<std::uint8_t>;

inline std::size_t bytes_of(Output const& output) {
  return std::size_t(output.rows) * std::size_t(output.columns) * element_bytes(output.type);
}
template <class Space>
auto memory_of(Output const& output) {
  return Kokkos::View<std::uint8_t*, typename Space::memory_space, Kokkos::MemoryUnmanaged>(
      static_cast<std::uint8_t*>(output.data), bytes_of(output));
}
template <class Space>
Snapshot snapshot(Output const& output) {
  Snapshot bytes(bytes_of(output));
  Kokkos::View<std::uint8_t*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> const host(bytes.data(), bytes.size());
  Kokkos::deep_copy(host, memory_of<Space>(output));
  return bytes;
}
// Makes the first `bytes` of a result NaNs, so that what is not written is not right by chance.
template <class Space>
void spoil(Output const& output, std::size_t bytes) {
  Kokkos::deep_copy(Kokkos::subview(memory_of<Space>(output), Kokkos::pair(std::size_t(0), bytes)), 0xff);
}

inline std::vector<double> row_of(Output const& output, Snapshot const& bytes, std::ptrdiff_t row) {
  auto const values_of = [&]<class Element>(std::type_identity<Element>) {
    std::vector<double> values(std::size_t(output.columns));
    auto const* from = bytes.data() + std::size_t(row) * values.size() * sizeof(Element);
    for (std::size_t i = 0; i < values.size(); ++i) {
      Element element;
      std::memcpy(&element, from + i * sizeof(Element), sizeof(Element));
      if constexpr (std::is_same_v<Element, int>)
        values[i] = element;
      else
        values[i] = double(kfuse::to_real(element));
    }
    return values;
  };
  return output.is_integer ? values_of(std::type_identity<int>()) : with_element(output.type, values_of);
}

struct Deviation {
  double largest = 0;  // NaN wins
  std::string where;

  bool within(double allowed) const { return largest <= allowed; }
};

// Takes one row in. Infinities must be equal; a NaN is right only where a reference expects one.
inline void compare(Deviation& deviation, Output const& output, std::ptrdiff_t row, std::vector<double> const& actual,
                    std::vector<double> const& expected, bool expects_nan = true) {
  for (std::size_t i = 0; i < actual.size() && !std::isnan(deviation.largest); ++i) {
    double const a = actual[i], e = expected.at(i);
    if (a == e || (expects_nan && std::isnan(a) && std::isnan(e))) continue;
    double const d = std::abs(a - e) / std::max(std::abs(e), output.floor);
    if (d <= deviation.largest) continue;
    deviation.largest = d;
    deviation.where = fmt::format("{}[{}, {}] is {:.9g}, but should be {:.9g}", output.name, row, i, a, e);
  }
}

// Rows of a result as they should be.
using Expected = std::vector<std::pair<std::ptrdiff_t, std::vector<double>>>;

inline Expected expected_rows(Output const& output) {
  Expected result;
  if (!output.reference || output.columns == 0) return result;
  std::ptrdiff_t const most =
      output.rows_checked > 0 ? output.rows_checked : std::max<std::ptrdiff_t>(4, (1 << 20) / output.columns);
  std::ptrdiff_t const checked = std::min(output.rows, most);
  for (std::ptrdiff_t i = 0; i < checked; ++i) {
    std::ptrdiff_t const row = checked == 1 ? 0 : i * (output.rows - 1) / (checked - 1);
    result.emplace_back(row, output.reference(row));
  }
  return result;
}

inline Deviation against_reference(Output const& output, Snapshot const& bytes, Expected const& expected) {
  Deviation deviation;
  for (auto const& [row, values] : expected) compare(deviation, output, row, row_of(output, bytes, row), values);
  return deviation;
}

inline Deviation against_each_other(Output const& output, Snapshot const& bytes, Snapshot const& other) {
  Deviation deviation;
  bool const has_reference = bool(output.reference);
  if (bytes == other && has_reference) return deviation;
  for (std::ptrdiff_t row = 0; row < output.rows; ++row)
    compare(deviation, output, row, row_of(output, bytes, row), row_of(output, other, row), has_reference);
  return deviation;
}

}  // namespace bench

#endif
