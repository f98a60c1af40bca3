// SPDX-License-Identifier: Apache-2.0
// SumInto: the sum of a row, in memory.
#ifndef KFUSE_FUSED_STAGE_SUM_INTO_HPP
#define KFUSE_FUSED_STAGE_SUM_INTO_HPP

#include <kfuse/core/chain.hpp>

#include <array>
#include <cstddef>

namespace kfuse::impl {

// to = the sum of the row, divided by what is in memory; nothing divided by nothing is 0.
template <class Real_>
struct SumInto {
  using stage = RowStage;
  Real_* to;
  Real_ const* divisor;  // null: 1

  SumInto(Real_* t, Real_ const* d) : to(t), divisor(d) {}
  auto reads() const { return std::array{Span{divisor, divisor ? 1 : 0, sizeof(Real_), 0, 0, -1}}; }
  auto writes() const { return std::array{Span{to, 1, sizeof(Real_), 0, 0, -1}}; }
  template <class Real>
  KOKKOS_FUNCTION Real identity() const {
    return 0;
  }
  template <class Real>
  KOKKOS_FUNCTION void merge(Real& a, Real b) const {
    a += b;
  }
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(Real& sum, X const& x, Place) const {
    Real part = 0;
    for (auto v : x) part += v;
    sum += part;
  }
  template <class Real>
  KOKKOS_FUNCTION Real finish(Real sum, int) const {
    return sum == 0 || divisor == nullptr ? sum : sum / Real(*divisor);
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
