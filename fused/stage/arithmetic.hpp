// SPDX-License-Identifier: Apache-2.0
// add(r): x + r. multiply(r): x * r. bias(b): x + b, weight(w): x * w, for each column. scale(s): x * s.
#ifndef KFUSE_FUSED_STAGE_ARITHMETIC_HPP
#define KFUSE_FUSED_STAGE_ARITHMETIC_HPP

#include <kfuse/fused/stage/load_store.hpp>

namespace kfuse {

namespace impl {

enum class Operation { add, multiply };

template <Operation operation, class X, class Element>
KOKKOS_FUNCTION void combine(X& x, Packed<Element, X::width, X::access> const& packed) {
  X other;
  unpack(packed, other);
  for (int i = 0; i < X::width; ++i) {
    if constexpr (operation == Operation::add)
      x[i] = backend::add(x[i], other[i]);
    else
      x[i] *= other[i];
  }
}

}  // namespace impl

// With another matrix.
template <impl::Operation operation, class Element, class Memory = void>
struct WithMatrix {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;
  static constexpr int flops = 1;
  static constexpr bool row_input = true;

  Tensor<Element const, 2> from;  // [rows, columns]

  auto reads() const { return std::array{span_of(from)}; }
  void check(std::string_view where, Shape shape) const { impl::check_matrix(from, where, shape); }
  template <class X>
  KOKKOS_FUNCTION auto fetch(Place at) const {
    return kfuse::fetch<X>(from.at(at.row, at.column));
  }
  template <class X, class Fetched>
  KOKKOS_FUNCTION void take(X& x, Fetched const& fetched, Place) const {
    impl::combine<operation>(x, fetched);
  }
};

// With one value for each column.
template <impl::Operation operation, class Element, class Memory = void>
struct WithVector {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;
  static constexpr int flops = 1;
  static constexpr bool column_input = true;

  Tensor<Element const, 1> from;  // [columns]

  auto reads() const { return std::array{span_of(from)}; }
  void check(std::string_view where, Shape shape) const { impl::check_vector(from, where, shape); }
  template <class X>
  KOKKOS_FUNCTION auto fetch(Place at) const {
    return kfuse::fetch<X>(from.at(at.column));
  }
  template <class X, class Fetched>
  KOKKOS_FUNCTION void take(X& x, Fetched const& fetched, Place) const {
    impl::combine<operation>(x, fetched);
  }
};

struct Scale {
  using stage = ElementStage;
  static constexpr int flops = 1;
  double factor;

  void check(std::string_view where, Shape) const { impl::check_factor(factor, where, "scale"); }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place) const {
    for (auto& v : x) v *= typename X::Real(factor);
  }
};

template <TensorLike T>
auto add(T const& r) {
  return WithMatrix<impl::Operation::add, impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{
      impl::tensor<2>(r, "kfuse", "add")};
}
template <TensorLike T>
auto multiply(T const& r) {
  return WithMatrix<impl::Operation::multiply, impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{
      impl::tensor<2>(r, "kfuse", "multiply")};
}
template <TensorLike T>
auto bias(T const& b) {
  return WithVector<impl::Operation::add, impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{
      impl::tensor<1>(b, "kfuse", "bias")};
}
template <TensorLike T>
auto weight(T const& w) {
  return WithVector<impl::Operation::multiply, impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{
      impl::tensor<1>(w, "kfuse", "weight")};
}
inline Scale scale(double factor) {
  return {factor};
}

}  // namespace kfuse

#endif
