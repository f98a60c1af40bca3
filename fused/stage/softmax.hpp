// SPDX-License-Identifier: Apache-2.0
// softmax: y(c) = exp(scale x(c) - m) / sum over c of exp(scale x(c) - m), m = max over c of scale x(c)
//
// Two reductions, the maximum and the sum of the exponentials, with one exponential a value. A row of -infinity alone
// (everything masked) gives zeros; a NaN makes the row NaN.
#ifndef KFUSE_FUSED_STAGE_SOFTMAX_HPP
#define KFUSE_FUSED_STAGE_SOFTMAX_HPP

#include <kfuse/fused/stage/activation.hpp>
#include <kfuse/fused/stage/norm.hpp>

namespace kfuse {

// y = exp(scale x - max(scale x))
struct ExponentialFromMaximum {
  using stage = RowStage;
  static constexpr int flops = 4;
  double scale = 1;

  void check(std::string_view where, Shape) const {
    impl::check(std::isfinite(scale), where, "softmax: scale must be finite");
  }
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
    for (auto& v : x) v = backend::exp2((v * Real(scale) - high) * impl::log2_e<Real>);
  }
};

// y = x / sum(x), and zeros where the sum is zero
struct DivideBySum : impl::SumOfNumbers {
  static constexpr int flops = 2;
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(Real& sum, X const& x, Place) const {
    for (auto v : x) sum += v;
  }
  template <class Real>
  KOKKOS_FUNCTION Real finish(Real sum, int) const {
    return sum == 0 ? Real(0) : backend::divide(Real(1), sum);
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place, typename X::Real factor) const {
    for (auto& v : x) v *= factor;
  }
};

struct SoftmaxOptions {
  double scale = 1;
};

inline auto softmax(SoftmaxOptions const& options = {}) {
  return ExponentialFromMaximum{options.scale} | DivideBySum{};
}

}  // namespace kfuse

#endif
