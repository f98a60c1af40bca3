// SPDX-License-Identifier: Apache-2.0
// softmax: y(c) = exp(scale x(c) - m) / sum over c of exp(scale x(c) - m), m = max over c of scale x(c)
//
// Two reductions, the maximum and the sum of the exponentials, with one exponential a value. With sinks, one reduction
// and two exponentials. A row of -infinity alone (everything masked) gives zeros; a NaN makes the row NaN.
#ifndef KFUSE_FUSED_STAGE_SOFTMAX_HPP
#define KFUSE_FUSED_STAGE_SOFTMAX_HPP

#include <kfuse/fused/stage/exponential_sum.hpp>
#include <kfuse/fused/stage/load_store.hpp>
#include <kfuse/fused/stage/sum.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace kfuse {

// y = exp(scale x - max(scale x))
struct ExponentialFromMaximum {
  using stage = RowStage;
  static constexpr int flops = 4;
  static constexpr bool computes_at_length = true;
  double scale = 1;

  void check(std::string_view where, Shape) const { impl::check_factor(scale, where, "scale"); }
  template <class Real>
  KOKKOS_FUNCTION Real identity() const {
    return -Kokkos::Experimental::infinity_v<Real>;
  }
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(Real& high, X const& x, Place) const {
    for (auto v : x) merge(high, v * Real(scale));
  }
  template <class Real>
  KOKKOS_FUNCTION void merge(Real& a, Real b) const {
    a = a > b ? a : b;
  }
  template <class Real>
  KOKKOS_FUNCTION Real finish(Real high, int) const {
    return high == identity<Real>() ? Real(0) : high;
  }
  // The difference is taken first: it is exact where it matters, however large the values are.
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place, typename X::Real high) const {
    using Real = typename X::Real;
    for (auto& v : x) v = impl::exponential(v * Real(scale), high);
  }
};

// y = x / sum(x), and zeros where the sum is zero
template <Summation summation = Summation::compensated>
struct DivideBySum : impl::SumOfRow<summation> {
  static constexpr int flops = 2;

  template <class Sum, class X>
  KOKKOS_FUNCTION void accumulate(Sum& sum, X const& x, Place) const {
    impl::add_to(sum, impl::sum_in_pairs<0, X::width>(x, [](auto v) { return v; }));
  }
  template <class Sum>
  KOKKOS_FUNCTION auto finish(Sum const& sum, int) const {
    auto const total = impl::rounded_sum(sum);
    using Real = std::remove_const_t<decltype(total)>;
    return total == 0 ? Real(0) : backend::divide(Real(1), total);
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place, typename X::Real factor) const {
    for (auto& v : x) v *= factor;
  }
};

// y = exp(x) / (exp(sink) + sum(exp(x))): each head has a logit of its own that takes probability and gives no value
// (gpt-oss). Rows are [..., heads, queries].
template <class Element, class Memory = void>
struct SoftmaxWithSinks {
  using stage = RowStage;
  using memory_space = Memory;
  static constexpr int flops = 8;
  static constexpr int extra_registers = 16;
  static constexpr bool computes_at_length = true;

  Tensor<Element const, 1> sinks;  // [heads]; without memory: none
  int queries;

  template <class Real>
  struct Result {
    Real reference, factor;
  };

  auto reads() const {
    Span span = span_of(sinks);
    span.element_bytes = 0;
    return std::array{span};
  }
  void check(std::string_view where, Shape shape) const {
    if (sinks.data == nullptr || shape.rows == 0) return;
    impl::check_row_numbers(where, "sinks", shape);
    std::ptrdiff_t const batch_rows = std::ptrdiff_t(sinks.extent(0)) * queries;
    impl::check(batch_rows > 0 && shape.rows % batch_rows == 0, where, [&] {
      return "sinks: " + std::to_string(shape.rows) + " rows are not [..., heads, queries] of " +
             std::to_string(sinks.extent(0)) + " sinks and " + std::to_string(queries) +
             " queries; give one sink for each head, and say in options.queries how many queries there are";
    });
  }
  template <class Real>
  KOKKOS_FUNCTION impl::ExponentialSum<Real> identity() const {
    return {};
  }
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(impl::ExponentialSum<Real>& sum, X const& x, Place at) const {
    if (sinks.data != nullptr && at.column == 0) {
      unsigned const head = unsigned(at.row) / unsigned(queries) % unsigned(sinks.extent(0));
      impl::add_exponentials(sum, Values<Real, 1, Access::single>{{Real(to_real(sinks(head)))}});
    }
    impl::add_exponentials(sum, x);
  }
  template <class Real>
  KOKKOS_FUNCTION void refer(impl::ExponentialSum<Real>& sum, Real reference) const {
    impl::refer_exponentials(sum, reference);
  }
  template <class Real>
  KOKKOS_FUNCTION void join(impl::Exponentials<Real>& a, impl::Exponentials<Real> const& b) const {
    impl::join_exponentials(a, b);
  }
  template <class Real>
  KOKKOS_FUNCTION Result<Real> finish(impl::ExponentialSum<Real> const& s, int) const {
    return {s.reference, s.shares.sum == 0 ? Real(0) : backend::divide(Real(1), s.shares.sum)};
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place, Result<typename X::Real> const& r) const {
    for (auto& v : x) v = impl::exponential(v, r.reference) * r.factor;
  }
};

// summation: summation_of the result's type; as it stands, right for all.
template <Summation summation = Summation::compensated>
auto softmax(double scale = 1) {
  return ExponentialFromMaximum{scale} | DivideBySum<summation>{};
}
// sinks: [heads], or without memory; rows are [..., heads, queries].
template <TensorLike S>
auto softmax_with_sinks(S const& sinks, int queries) {
  return SoftmaxWithSinks<impl::ElementOf<S>, typename impl::MemoryOf<S>::type>{
      impl::tensor<1>(sinks, "kfuse", "sinks"), queries};
}

}  // namespace kfuse

#endif
