// SPDX-License-Identifier: Apache-2.0
// Matrices whose surroundings are watched.
#ifndef KFUSE_TESTS_GUARDED_MATRIX_HPP
#define KFUSE_TESTS_GUARDED_MATRIX_HPP

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "values.hpp"

namespace kfuse::test {

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
  int rows() const { return rows_; }
  int columns() const { return columns_; }

  void set(std::vector<double> const& values) const {
    if (values.empty()) return;
    if (values.size() != std::size_t(rows_) * columns_)
      throw std::length_error("kfuse::test: values and matrix differ in size");
    auto all = elements(buffer_);
    for (int r = 0; r < rows_; ++r)
      std::transform(values.begin() + place_of(r, columns_, 0), values.begin() + place_of(r + 1, columns_, 0),
                     all.begin() + place_of(r, stride_, first_), [](double v) { return encode<Element>(v); });
    set_elements(buffer_, all);
  }
  // Row by row, without what lies between.
  std::vector<double> values() const {
    auto const all = elements(buffer_);
    std::vector<double> inside(std::size_t(rows_) * columns_);
    for (int r = 0; r < rows_; ++r) {
      auto const row = all.begin() + place_of(r, stride_, first_);
      std::transform(row, row + columns_, inside.begin() + place_of(r, columns_, 0),
                     [](Element v) { return decode(v); });
    }
    return inside;
  }
  bool guards_intact() const {
    auto all = elements(bytes());
    for (int r = 0; r < rows_; ++r)
      std::fill_n(all.begin() + place_of(r, stride_, first_) * sizeof(Element), columns_ * sizeof(Element), 0xff);
    return std::all_of(all.begin(), all.end(), [](std::uint8_t b) { return b == 0xff; });
  }

 private:
  static constexpr std::size_t guard = 256;  // bytes

  static std::ptrdiff_t place_of(int row, std::size_t stride, std::size_t first) {
    return std::ptrdiff_t(first + std::size_t(row) * stride);
  }
  auto bytes() const {
    return Kokkos::View<std::uint8_t*, Space, Kokkos::MemoryUnmanaged>(reinterpret_cast<std::uint8_t*>(buffer_.data()),
                                                                       buffer_.size() * sizeof(Element));
  }

  int rows_, columns_;
  std::size_t stride_, first_;
  Kokkos::View<Element*, Space> buffer_;
};

// Rows [first, first + count), where they lie.
template <class Element>
auto rows_of(GuardedMatrix<Element> const& matrix, int first, int count) {
  return Kokkos::subview(matrix.view(), Kokkos::pair(first, first + count), Kokkos::ALL);
}

}  // namespace kfuse::test

#endif
