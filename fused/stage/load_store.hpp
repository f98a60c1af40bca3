// SPDX-License-Identifier: Apache-2.0
// load(x): the values of x. store(y): y = the values, rounded to nearest. The values themselves stay as they are.
#ifndef KFUSE_FUSED_STAGE_LOAD_STORE_HPP
#define KFUSE_FUSED_STAGE_LOAD_STORE_HPP

#include <kfuse/core/chain.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

namespace kfuse {

namespace impl {

template <class T>
using ElementOf = std::remove_const_t<typename T::value_type>;

inline std::string rows_text(Shape shape) {
  return std::to_string(shape.rows) + " rows of " + std::to_string(shape.columns) + " columns";
}

// What a matrix argument must be for a chain over `shape`.
template <class Element>
void check_matrix(Tensor<Element, 2> const& t, std::string_view where, Shape shape) {
  check(t.extent(0) == shape.rows && t.extent(1) == shape.columns, where, [&] {
    return name_of(t) + ": shape " + shape_text(t) + " does not match the chain's [" + std::to_string(shape.rows) +
           ", " + std::to_string(shape.columns) + "]; give it one value for each";
  });
}
template <class Element>
void check_vector(Tensor<Element, 1> const& t, std::string_view where, Shape shape) {
  check(t.extent(0) == shape.columns, where, [&] {
    return name_of(t) + ": has " + std::to_string(t.extent(0)) + " entries, but rows have " +
           std::to_string(shape.columns) + " columns; give it one entry for each column";
  });
}

// For stages that divide the number of a row: in 64 bits, that costs registers that the values of rows need.
inline void check_row_numbers(std::string_view where, char const* name, Shape shape) {
  check(shape.rows >> 32 == 0, where, [&] {
    return std::string(name) + ": " + std::to_string(shape.rows) +
           " rows are more than 2^32 - 1 (their numbers are divided in 32 bits); call it for parts of the batch";
  });
}

// What a factor must be: kernels that compute in float take it as a float.
inline void check_factor(double factor, std::string_view where, char const* name) {
  double const size = std::abs(factor);
  bool const fits =
      size >= double(std::numeric_limits<float>::min()) && size <= double(std::numeric_limits<float>::max());
  check(factor == 0 || fits, where, [&] {
    return std::string(name) + " is " + number_text(factor) +
           ", which no float holds (kernels compute with it in float); give it a finite number, 0 or of a size between "
           "1.2e-38 and 3.4e38";
  });
}

}  // namespace impl

template <class Element, class Memory = void>
struct Load {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;
  static constexpr bool row_input = true;

  Tensor<Element const, 2> from;  // [rows, columns]

  Shape shape() const { return {from.extent(0), from.extent(1)}; }
  auto reads() const { return std::array{span_of(from)}; }
  void check(std::string_view where, Shape shape) const { impl::check_matrix(from, where, shape); }
  template <class X>
  KOKKOS_FUNCTION auto fetch(Place at) const {
    return kfuse::fetch<X>(from.at(at.row, at.column));
  }
  template <class X, class Fetched>
  KOKKOS_FUNCTION void take(X& x, Fetched const& fetched, Place) const {
    unpack(fetched, x);
  }
};

template <class Element, class Memory = void>
struct Store {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;

  Tensor<Element, 2> to;  // [rows, columns]

  auto writes() const { return std::array{span_of(to)}; }
  void check(std::string_view where, Shape shape) const { impl::check_matrix(to, where, shape); }
  template <class X>
  KOKKOS_FUNCTION void apply(X const& x, Place at) const {
    write(to.at(at.row, at.column), x);
  }
};

// x: [rows, columns], of any element type.
template <TensorLike T>
auto load(T const& x) {
  return Load<impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{impl::tensor<2>(x, "kfuse", "load")};
}

// y: [rows, columns]. It may be the memory of an argument that an earlier stage reads.
template <TensorLike T>
auto store(T const& y) {
  static_assert(!std::is_const_v<typename T::value_type>, "kfuse: store needs a View whose values are not const");
  return Store<impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{impl::tensor<2>(y, "kfuse", "store")};
}

}  // namespace kfuse

#endif
