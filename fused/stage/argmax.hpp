// SPDX-License-Identifier: Apache-2.0
// argmax(indices), argmax(values, indices): the column of each row's largest value, and the value. The values
// themselves stay as they are.
//
// As in PyTorch, a NaN is larger than every number, and of equals, NaNs among them, the first counts. A row that is
// -infinity throughout gives column 0.
#ifndef KFUSE_FUSED_STAGE_ARGMAX_HPP
#define KFUSE_FUSED_STAGE_ARGMAX_HPP

#include <kfuse/core/check_chain.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace kfuse {

namespace impl {

// A value and the column it stands in. The default comes after every other.
template <class Real>
struct Ranked {
  static constexpr int none = std::numeric_limits<int>::max();
  Real value = -std::numeric_limits<Real>::infinity();
  int index = none;
};

// Does a come before b, largest first? No two of one row rank alike.
template <class Real>
KOKKOS_FUNCTION bool ranks_before(Ranked<Real> const& a, Ranked<Real> const& b) {
  if (a.value < b.value) return false;
  if (a.value > b.value) return true;
  bool const a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
  return a_is_nan == b_is_nan ? a.index < b.index : a_is_nan;
}

}  // namespace impl

template <class Element, class Memory = void>
struct Argmax {
  using stage = RowStage;
  using memory_space = Memory;
  static constexpr int flops = 1;
  static constexpr bool commutes = true;

  Tensor<Element, 1> values;  // [rows]; without data, nobody asks for them
  Tensor<int, 1> indices;     // [rows]

  auto writes() const {
    Span value = span_of(values), index = span_of(indices);
    value.element_bytes = index.element_bytes = 0;  // one a row
    return std::array{value, index};
  }
  void check(std::string_view where, Shape shape) const {
    impl::check(shape.columns > 0 || shape.rows == 0, where,
                "argmax: rows without columns have no largest value; give each row one at least");
    check_one_each(indices, where, shape);
    if (values.data != nullptr) check_one_each(values, where, shape);
    impl::check(!impl::overlap(span_of(values), span_of(indices)), where, [&] {
      return impl::name_of(values) + ": overlaps " + impl::name_of(indices) +
             " (which of them stays would be chance); give each memory of its own";
    });
  }

  template <class Real>
  KOKKOS_FUNCTION impl::Ranked<Real> identity() const {
    return {};
  }
  // A lane comes to its columns in order, so a value must be larger than those before it; -infinity never is. Without
  // NaNs, which make the sum one, the largest of a pack is found by pairs: that takes half the comparisons.
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(impl::Ranked<Real>& best, X const& x, Place at) const {
    Real sum = best.value;
    for (Real v : x) sum += v;
    if (sum == sum) {
      impl::Ranked<Real> const largest = largest_of<0, X::width>(x);
      if (largest.value > best.value) best = {largest.value, at.column + largest.index};
    } else {
      for (int i = 0; i < X::width; ++i)
        if (!(x[i] <= best.value) && best.value == best.value) best = {x[i], at.column + i};
    }
  }
  template <class Real>
  KOKKOS_FUNCTION void merge(impl::Ranked<Real>& best, impl::Ranked<Real> const& other) const {
    if (ranks_before(other, best)) best = other;
  }
  template <class Real>
  KOKKOS_FUNCTION impl::Ranked<Real> finish(impl::Ranked<Real> const& best, int) const {
    return {best.value, best.index == best.none ? 0 : best.index};
  }
  template <class Real>
  KOKKOS_FUNCTION void conclude(impl::Ranked<Real> const& best, std::ptrdiff_t row) const {
    indices(row) = best.index;
    if (values.data != nullptr) values(row) = from_real<Element>(best.value);
  }
  template <class X, class Real>
  KOKKOS_FUNCTION void apply(X&, Place, impl::Ranked<Real> const&) const {}

 private:
  template <class T>
  static void check_one_each(Tensor<T, 1> const& t, std::string_view where, Shape shape) {
    impl::check(t.extent(0) == shape.rows, where, [&] {
      return impl::name_of(t) + ": has " + std::to_string(t.extent(0)) + " entries for " + impl::rows_text(shape) +
             "; give it one for each row";
    });
  }
  // Of x[first] to x[first + count - 1], none of which is a NaN; of equals the first.
  template <int first, int count, class X>
  KOKKOS_FUNCTION static impl::Ranked<typename X::Real> largest_of(X const& x) {
    if constexpr (count == 1) {
      return {x[first], first};
    } else {
      auto const left = largest_of<first, count / 2>(x), right = largest_of<first + count / 2, count - count / 2>(x);
      return right.value > left.value ? right : left;
    }
  }
};

// indices: int, [rows].
template <TensorLike I>
auto argmax(I const& indices) {
  return Argmax<float, impl::MemoriesOf<I>>{{}, impl::tensor<1>(indices, "kfuse", "argmax: indices")};
}
// values: [rows], of any element type, rounded to nearest.
template <TensorLike V, TensorLike I>
auto argmax(V const& values, I const& indices) {
  return Argmax<impl::ElementOf<V>, impl::MemoriesOf<V, I>>{impl::tensor<1>(values, "kfuse", "argmax: values"),
                                                            impl::tensor<1>(indices, "kfuse", "argmax: indices")};
}

}  // namespace kfuse

#endif
