// SPDX-License-Identifier: Apache-2.0
// log_softmax: y(c) = x(c) - m - log(sum over c of exp(x(c) - m)), m = max over c of x(c)
//
// The maximum and the sum come of one reduction, in which a sum is scaled down as its maximum grows (Milakov,
// Gimelshein 2018). In float a pack finds its maximum first, so that scaling costs one exponential a pack, and nothing
// branches. In double, whose exponentials cost most, only what is larger by more than 1 scales the sum down.
#ifndef KFUSE_FUSED_STAGE_LOG_SUM_EXP_HPP
#define KFUSE_FUSED_STAGE_LOG_SUM_EXP_HPP

#include <kfuse/fused/stage/activation.hpp>

namespace kfuse {

namespace impl {

// sum over v of exp(v - high), high the largest v, or in double one that no v exceeds by more than 1 (or its rounding,
// of large numbers). It begins with the lowest finite number: infinity is never taken from infinity, and values of
// -infinity add nothing. A NaN, or +infinity, makes the sum NaN.
template <class Real>
struct ExponentialSum {
  Real high = -Kokkos::Experimental::finite_max_v<Real>;
  Real sum = 0;
};

// exp(v - high). The difference is taken first: it is exact where it matters, however large the values are.
template <class Real>
KOKKOS_FUNCTION Real exponential(Real v, Real high) {
  return backend::exp2(backend::add(v, -high) * log2_e<Real>);
}

template <class X>
KOKKOS_FUNCTION void add_exponentials(ExponentialSum<float>& s, X const& x) {
  float high = s.high;
#pragma unroll
  for (auto v : x) high = Kokkos::fmax(high, v);  // passes over NaNs, which the sum does not
  float sum = exponential(x[0], high);
#pragma unroll
  for (int i = 1; i < X::width; ++i) sum = backend::add(sum, exponential(x[i], high));
  s.sum = s.sum * exponential(s.high, high) + sum;
  s.high = high;
}
template <class X>
KOKKOS_FUNCTION void add_exponentials(ExponentialSum<double>& s, X const& x) {
  double const bound = s.high + 1;
  bool exceeds = false;
#pragma unroll
  for (auto v : x) exceeds = exceeds || v > bound;
  if (exceeds) {
    double high = s.high;
    for (auto v : x) high = Kokkos::fmax(high, v);
    s.sum *= exponential(s.high, high);
    s.high = high;
  }
  double sum = exponential(x[0], s.high);
#pragma unroll
  for (int i = 1; i < X::width; ++i) sum = backend::add(sum, exponential(x[i], s.high));
  s.sum = backend::add(s.sum, sum);
}

template <class Real>
KOKKOS_FUNCTION void merge_exponentials(ExponentialSum<Real>& a, ExponentialSum<Real> const& b) {
  // That of the higher maximum is taken as it is: one exponential, and the same bits as with two.
  bool const a_is_higher = a.high >= b.high;
  Real const high = a_is_higher ? a.high : b.high, low = a_is_higher ? b.high : a.high;
  Real const sum = a_is_higher ? a.sum : b.sum, other = a_is_higher ? b.sum : a.sum;
  a.sum = backend::add(sum, other * exponential(low, high));
  a.high = high;
}

}  // namespace impl

// A row of -infinity alone stays as it is: the logarithms of softmax's zeros. A NaN or a +infinity makes its row NaN.
struct LogSoftmax {
  using stage = RowStage;
  static constexpr int flops = 6;
  static constexpr bool commutes = true, computes_at_length = true;

  template <class Real>
  struct Result {
    Real high, log_sum;
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
  KOKKOS_FUNCTION void merge(impl::ExponentialSum<Real>& a, impl::ExponentialSum<Real> const& b) const {
    impl::merge_exponentials(a, b);
  }
  template <class Real>
  KOKKOS_FUNCTION Result<Real> finish(impl::ExponentialSum<Real> const& s, int) const {
    return {s.high, s.sum == 0 ? Real(0) : Kokkos::log(s.sum)};
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place, Result<typename X::Real> const& r) const {
    for (auto& v : x) v = backend::add(v, -r.high) - r.log_sum;
  }
};

constexpr LogSoftmax log_softmax() {
  return {};
}

}  // namespace kfuse

#endif
