// SPDX-License-Identifier: Apache-2.0
// Sums of exponentials whose largest is not known before: a sum is scaled down as its reference grows (Milakov,
// Gimelshein 2018). In float the reference is the maximum, which a pack finds first, so that scaling costs one
// exponential a pack, and nothing branches. In double, where exponentials cost most, references are multiples of
// almost ln(2), so that scaling costs a few products.
#ifndef KFUSE_FUSED_STAGE_EXPONENTIAL_SUM_HPP
#define KFUSE_FUSED_STAGE_EXPONENTIAL_SUM_HPP

#include <kfuse/backends/backend.hpp>
#include <kfuse/fused/stage/activation.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace kfuse::impl {

// The references of sums in double: n step, a double without rounding for |n| < 2^20, as step has 32 bits. And
// exp(n step) is 2^n exp(-n rest), of a tiny exponent.
struct Steps {
  static constexpr double step = 0x1.62e42feep-1, rest = 0x1.a39ef35793c76p-33;  // their sum is ln(2)

  // Are values of this magnitude, and references, counted in steps?
  KOKKOS_FUNCTION static bool count(std::uint32_t magnitude) { return magnitude < 0x41200000; }  // |x| < 2^19
  // |x|, to be compared: the upper half of its bits
  KOKKOS_FUNCTION static std::uint32_t magnitude(double x) {
    return std::uint32_t(Kokkos::bit_cast<std::uint64_t>(x) >> 32) & 0x7fffffffu;
  }
  // Added to a number below 2^31, it leaves the nearest integer in the lower bits.
  static constexpr double rounding = 6755399441055744.0;  // 3 2^51
  KOKKOS_FUNCTION static int integer(double rounded) {
    return int(std::uint32_t(Kokkos::bit_cast<std::uint64_t>(rounded)));
  }
  // n + rounding
  KOKKOS_FUNCTION static double rounded(int n) {
    auto const upper = std::uint32_t(0x43380000 + (n >> 31));
    return Kokkos::bit_cast<double>(std::uint64_t(upper) << 32 | std::uint32_t(n));
  }
  // x / ln(2) + rounding
  KOKKOS_FUNCTION static double counted(double x) { return Kokkos::fma(x, log2_e<double>, rounding); }

  // 2^n x for x in [1/2, 2) and n <= 0, or about 2^-1021 where that is less.
  KOKKOS_FUNCTION static double times_power(double x, int n) {
    auto const bits = Kokkos::bit_cast<std::uint64_t>(x);
    auto const upper = std::uint32_t(bits >> 32) + (std::uint32_t(Kokkos::max(n, -1021)) << 20);
    return Kokkos::bit_cast<double>(std::uint64_t(upper) << 32 | std::uint32_t(bits));
  }
  // exp(n step) for n <= 0, or about 2^-1021
  KOKKOS_FUNCTION static double power(int n) {
    double const x = (rounded(n) - rounding) * -rest;  // below 2^-22 where the power is not tiny
    return times_power(Kokkos::fma(x, Kokkos::fma(x, 0.5, 1.0), 1.0), n);
  }

  // exp(x) for |x| <= ln(2) / 2 and a little more. The polynomial has a relative error of 3e-16.
  struct Exponential {
    static constexpr backend::Coefficients<11> coefficients{0x1.27278c723cf13p-22,
                                                            0x1.72f9d90534e81p-19,
                                                            0x1.a01b6d9afb6dep-16,
                                                            0x1.a01979fed69f7p-13,
                                                            0x1.6c16c0c020867p-10,
                                                            0x1.1111112d624b3p-7,
                                                            0x1.555555559381ep-5,
                                                            0x1.555555554bb57p-3,
                                                            0x1.ffffffffffe15p-2,
                                                            0x1.000000000001dp+0,
                                                            1.0};
  };
};

template <class Real>
struct Exponentials {
  Real sum = 0;
};
// sum over v of exp(v - reference), and what else is relative to it. The reference is the largest v, or in double one
// that no v exceeds by more than 0.35 (or its rounding, of large numbers). It begins with the lowest finite number:
// infinity is never taken from infinity, and values of -infinity add nothing. A NaN, or +infinity, makes the sum NaN.
template <class Real, class Shares_ = Exponentials<Real>>
struct ExponentialSum {
  using Shares = Shares_;
  Real reference = -Kokkos::Experimental::finite_max_v<Real>;
  Shares shares;
};

// exp(v - reference). The difference is taken first: it is exact where it matters, however large the values are.
template <class Real>
KOKKOS_FUNCTION Real exponential(Real v, Real reference) {
  return backend::exp2(backend::add(v, -reference) * log2_e<Real>);
}

// The pack added to the sum, which is made relative to `reference`.
template <class S, class X, class Real>
KOKKOS_FUNCTION void add_exponentials(S& s, X const& x, Real reference) {
  Real sum = exponential(x[0], reference);
#pragma unroll
  for (int i = 1; i < X::width; ++i) sum = backend::add(sum, exponential(x[i], reference));
  s.shares.sum = s.shares.sum * exponential(s.reference, reference) + sum;
  s.reference = reference;
}
template <class S, class X>
KOKKOS_FUNCTION auto highest(S const& s, X const& x) {
  auto high = s.reference;
#pragma unroll
  for (auto v : x) high = Kokkos::fmax(high, v);  // passes over NaNs, which the sum does not
  return high;
}

template <class Shares, class X>
KOKKOS_FUNCTION void add_exponentials(ExponentialSum<float, Shares>& s, X const& x) {
  add_exponentials(s, x, highest(s, x));
}
template <class Shares, class X>
KOKKOS_FUNCTION void add_exponentials(ExponentialSum<double, Shares>& s, X const& x) {
  std::uint32_t largest = Steps::magnitude(s.reference);
#pragma unroll
  for (auto v : x) largest = Kokkos::max(largest, Steps::magnitude(v));
  if (!Steps::count(largest)) {  // also of the first pack
    double const high = highest(s, x);
    bool const counts = Steps::count(Steps::magnitude(high));
    return add_exponentials(s, x, counts ? (Steps::counted(high) - Steps::rounding) * Steps::step : high);
  }
  int const before = Steps::integer(Steps::counted(s.reference));
  int reference = before;
  double counted[X::width];
#pragma unroll
  for (int i = 0; i < X::width; ++i) {
    counted[i] = Steps::counted(x[i]);
    reference = Kokkos::max(reference, Steps::integer(counted[i]));
  }
  double const references = Steps::rounded(reference) - Steps::rounding;
  // exp(v - reference step), v = n step + r, is 2^m exp(r - m rest), m = n - reference.
  auto const of = [&](int i) {
    double const n = counted[i] - Steps::rounding, r = Kokkos::fma(-n, Steps::step, x[i]);
    double const power = backend::polynomial<Steps::Exponential>(Kokkos::fma(references - n, Steps::rest, r));
    return Steps::times_power(power, Steps::integer(counted[i]) - reference);
  };
  double sum = of(0);
#pragma unroll
  for (int i = 1; i < X::width; ++i) sum = backend::add(sum, of(i));
  s.shares.sum = Kokkos::fma(s.shares.sum, Steps::power(before - reference), sum);
  s.reference = references * Steps::step;
}

// exp(low - high) of two references, the second no lower.
KOKKOS_INLINE_FUNCTION float between_references(float low, float high) {
  return exponential(low, high);
}
KOKKOS_INLINE_FUNCTION double between_references(double low, double high) {
  if (!Steps::count(Kokkos::max(Steps::magnitude(low), Steps::magnitude(high)))) return exponential(low, high);
  return Steps::power(Steps::integer(Steps::counted(low)) - Steps::integer(Steps::counted(high)));
}

// For the sums of stages: to be relative to a reference that is no lower, and to be added up.
template <class Real, class Shares>
KOKKOS_FUNCTION void refer_exponentials(ExponentialSum<Real, Shares>& s, Real reference) {
  s.shares.sum *= between_references(s.reference, reference);
  s.reference = reference;
}
template <class Real>
KOKKOS_FUNCTION void join_exponentials(Exponentials<Real>& a, Exponentials<Real> const& b) {
  a.sum = backend::add(a.sum, b.sum);
}

}  // namespace kfuse::impl

#endif
