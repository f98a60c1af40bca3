// SPDX-License-Identifier: Apache-2.0
// SumInto: the sum of a row, in memory.
#ifndef KFUSE_FUSED_STAGE_SUM_INTO_HPP
#define KFUSE_FUSED_STAGE_SUM_INTO_HPP

#include <kfuse/fused/stage/sum.hpp>

#include <array>
#include <cstddef>

namespace kfuse::impl {

// to = the sum of the row, divided by what is in memory; nothing divided by nothing is 0.
template <class Real_>
struct SumInto : SumOfRow<Summation::compensated> {
  Real_* to;
  Real_ const* divisor;  // null: 1

  SumInto(Real_* t, Real_ const* d) : to(t), divisor(d) {}
  auto reads() const { return std::array{Span{divisor, divisor ? 1 : 0, sizeof(Real_), 0, 0, -1}}; }
  auto writes() const { return std::array{Span{to, 1, sizeof(Real_), 0, 0, -1}}; }
  template <class Sum, class X>
  KOKKOS_FUNCTION void accumulate(Sum& sum, X const& x, Place) const {
    add_to(sum, sum_in_pairs<0, X::width>(x, [](auto v) { return v; }));
  }
  template <class Sum>
  KOKKOS_FUNCTION Real_ finish(Sum const& sum, int) const {
    Real_ const total = rounded_sum(sum);
    return total == 0 || divisor == nullptr ? total : total / *divisor;
  }
  template <class Real>
  KOKKOS_FUNCTION void conclude(Real const& result, std::ptrdiff_t) const {
    *to = result;
  }
  template <class X, class Result>
  KOKKOS_FUNCTION void apply(X&, Place, Result const&) const {}
};

}  // namespace kfuse::impl

#endif
