// SPDX-License-Identifier: Apache-2.0
// Where the arguments of row operators may lie: apart and watched, far apart, on top of one another.
#ifndef KFUSE_TESTS_ROW_MEMORY_HPP
#define KFUSE_TESTS_ROW_MEMORY_HPP

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "guarded_matrix.hpp"
#include "values.hpp"

namespace kfuse::test {

// How a matrix lies: strides are in elements. It may have more rows and columns than were asked for.
struct Lie {
  void* data = nullptr;
  std::ptrdiff_t stride = 0;
  int step = 1;
  int more_rows = 0, more_columns = 0;
};
enum class Use { read, written, both };
// A matrix that an operator asked for, by name.
struct Asked {
  std::string name;
  int rows, columns, element_bytes;
  Use use;

  std::size_t row_bytes() const { return std::size_t(columns) * std::size_t(element_bytes); }
};
// Where it shall lie.
using Memory = std::function<Lie(Asked const&)>;

// Matrices of their own, each surrounded by bytes that are watched; `place` counts elements.
class Guarded {
 public:
  explicit Guarded(Place2D place = {}) : place_(place), bytes_(std::make_shared<std::vector<Bytes>>()) {}

  Lie operator()(Asked const& m) const {
    int const size = m.element_bytes;
    auto const& bytes = bytes_->emplace_back(m.rows, m.columns * size, Place2D{place_.shift * size, place_.gap * size});
    return {bytes.view().data(), m.columns + place_.gap};
  }
  bool intact() const {
    return std::all_of(bytes_->begin(), bytes_->end(), [](Bytes const& b) { return b.guards_intact(); });
  }

 private:
  using Bytes = GuardedMatrix<std::uint8_t>;
  Place2D place_;
  std::shared_ptr<std::vector<Bytes>> bytes_;
};

inline Kokkos::View<std::uint8_t*, Space> uninitialized(std::size_t bytes) {
  return Kokkos::View<std::uint8_t*, Space>(Kokkos::view_alloc(Kokkos::WithoutInitializing, "kfuse::test"), bytes);
}

// Rows of every matrix lie more than 2^32 bytes apart: of 16-bit values more than 2^31 elements. Little of it is used.
class Far {
 public:
  Far() : bytes_(uninitialized(apart + near)) {}
  void clear() {
    used_ = 0;
    others_ = Guarded();
    for (std::size_t first : {std::size_t(0), apart}) {
      Kokkos::View<std::uint8_t*, Space, Kokkos::MemoryUnmanaged> const row(bytes_.data() + first, near);
      Kokkos::deep_copy(row, std::uint8_t(0xff));
    }
  }
  Lie operator()(Asked const& m) {
    if (m.rows == 1) return others_(m);
    auto* const first = bytes_.data() + used_;
    used_ += (m.row_bytes() + 255) / 256 * 256;
    if (used_ > near) throw std::length_error("kfuse::test::Far is too small");
    return {first, std::ptrdiff_t(apart) / m.element_bytes};
  }

 private:
  static constexpr std::size_t apart = (std::size_t(1) << 32) + 32, near = 1 << 20;
  Kokkos::View<std::uint8_t*, Space> bytes_;
  std::size_t used_ = 0;
  Guarded others_;
};

// Every matrix is all there, and zero where it is not written.
class Whole {
 public:
  Lie operator()(Asked const& m) {
    auto const bytes = uninitialized(std::size_t(m.rows) * m.row_bytes());
    if (m.use != Use::written) Kokkos::deep_copy(bytes, std::uint8_t(0));
    bytes_.push_back(bytes);
    return {bytes.data(), m.columns};
  }

 private:
  std::vector<Kokkos::View<std::uint8_t*, Space>> bytes_;
};

// Two matrices in one piece of memory, one of them some rows after the other's beginning.
class OnTop {
 public:
  OnTop(Asked const& other, Asked const& moved, int rows)
      : bytes_(std::max(other.rows, moved.rows) + rows, stride_of(std::max(other.row_bytes(), moved.row_bytes()))) {
    lies_[other.name] = {bytes_.view().data(), bytes_.columns() / other.element_bytes};
    lies_[moved.name] = {rows_of(bytes_, rows, 1).data(), bytes_.columns() / moved.element_bytes};
  }
  Lie operator()(Asked const& m) const {
    auto const found = lies_.find(m.name);
    return found == lies_.end() ? others_(m) : found->second;
  }

 private:
  static int stride_of(std::size_t bytes) { return int((bytes + 7) / 8 * 8); }  // any element is aligned in every row

  GuardedMatrix<std::uint8_t> bytes_;
  std::map<std::string, Lie> lies_;
  Guarded others_;
};

}  // namespace kfuse::test

#endif
