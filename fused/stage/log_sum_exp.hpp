// SPDX-License-Identifier: Apache-2.0
// log_softmax: y(c) = x(c) - m - log(sum over c of exp(x(c) - m)), m = max over c of x(c)
//
// The maximum (or what the logarithm is less its own, in double) and the sum come of one reduction.
#ifndef KFUSE_FUSED_STAGE_LOG_SUM_EXP_HPP
#define KFUSE_FUSED_STAGE_LOG_SUM_EXP_HPP

#include <kfuse/fused/stage/exponential_sum.hpp>

namespace kfuse {

// A row of -infinity alone stays as it is: the logarithms of softmax's zeros. A NaN or a +infinity makes its row NaN.
struct LogSoftmax {
  using stage = RowStage;
  static constexpr int flops = 6;
  static constexpr bool computes_at_length = true;

  template <class Real>
  struct Result {
    Real reference, log_sum;
  };

  template <class Real>
  KOKKOS_FUNCTION impl::ExponentialSum<Real> identity() const {
    return {};
  }
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(impl::ExponentialSum<Real>& sum, X const& x, Place) const {
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
    return {s.reference, s.shares.sum == 0 ? Real(0) : Kokkos::log(s.shares.sum)};
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place, Result<typename X::Real> const& r) const {
    for (auto& v : x) v = backend::add(v, -r.reference) - r.log_sum;
  }
};

constexpr LogSoftmax log_softmax() {
  return {};
}

}  // namespace kfuse

#endif
