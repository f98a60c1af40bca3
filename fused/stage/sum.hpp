// SPDX-License-Identifier: Apache-2.0
// What row stages that add numbers up have in common.
#ifndef KFUSE_FUSED_STAGE_SUM_HPP
#define KFUSE_FUSED_STAGE_SUM_HPP

#include <kfuse/core/chain.hpp>

#include <concepts>
#include <type_traits>

namespace kfuse {

// How floats are added up. compensated: in double, so that neither a lane that adds a whole row, as on the host, nor
// the order costs digits; results in fp32 would show it. plain: in float, for results of 16 bits, whose own rounding is
// far coarser; one word to merge instead of two. Doubles are always compensated.
enum class Summation { plain, compensated };

// What results of this element type need, whatever the types of the values that are added up.
template <class Element>
constexpr Summation summation_of = sizeof(Element) >= sizeof(float) ? Summation::compensated : Summation::plain;

namespace impl {

// A sum, and what its rounding has lost (Knuth's sum of two numbers).
struct ExactSum {
  double sum, lost;
};

template <std::floating_point Sum, std::floating_point Real>
KOKKOS_FUNCTION void add_to(Sum& sum, Real v) {
  sum = backend::add(sum, Sum(v));
}
KOKKOS_INLINE_FUNCTION void add_to(ExactSum& s, double v) {
  double const total = backend::add(s.sum, v), added = total - s.sum;
  s.lost += backend::add(s.sum, -(total - added)) + backend::add(v, -added);
  s.sum = total;
}
// The same either way round: what is lost is seen from the larger one (Dekker), so that nothing overflows that the sum
// does not.
KOKKOS_INLINE_FUNCTION void add_to(ExactSum& a, ExactSum const& b) {
  bool const a_is_larger = Kokkos::abs(a.sum) >= Kokkos::abs(b.sum);
  double const large = a_is_larger ? a.sum : b.sum, small = a_is_larger ? b.sum : a.sum;
  double const total = backend::add(large, small), lost = backend::add(small, -(total - large));
  a.lost = (a.lost + b.lost) + (total - total == 0 ? lost : 0);  // of what is not finite, nothing
  a.sum = total;
}

// The sum, in the type of what was added up.
KOKKOS_INLINE_FUNCTION float rounded_sum(float sum) {
  return sum;
}
KOKKOS_INLINE_FUNCTION float rounded_sum(double sum) {
  return float(sum);
}
// Of infinities and NaNs nothing is lost, but their difference is NaN.
KOKKOS_INLINE_FUNCTION double rounded_sum(ExactSum const& s) {
  return s.lost == s.lost ? s.sum + s.lost : s.sum;
}

// f(x[begin]) + ... in pairs: equal values add up exactly.
template <int begin, int count, class X, class F>
KOKKOS_FUNCTION typename X::Real sum_in_pairs(X const& x, F const& f) {
  if constexpr (count == 1)
    return f(x[begin]);
  else
    return backend::add(sum_in_pairs<begin, count / 2>(x, f), sum_in_pairs<begin + count / 2, count - count / 2>(x, f));
}

// A stage with this base has accumulate(), finish() and apply() of its own.
template <Summation summation>
struct SumOfRow {
  using stage = RowStage;
  static constexpr bool commutes = true;
  template <class Real>
  using Sum = std::conditional_t<std::is_same_v<Real, double>, ExactSum,
                                 std::conditional_t<summation == Summation::plain, float, double>>;

  template <class Real>
  KOKKOS_FUNCTION Sum<Real> identity() const {
    return {};
  }
  template <class S>
  KOKKOS_FUNCTION void merge(S& a, S const& b) const {
    add_to(a, b);
  }
};

}  // namespace impl
}  // namespace kfuse

#endif
