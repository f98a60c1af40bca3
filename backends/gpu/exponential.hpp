// SPDX-License-Identifier: Apache-2.0
// Powers in double, where the libraries of GPUs take more instructions, and a call for what is far. Portable.
#ifndef KFUSE_BACKENDS_GPU_EXPONENTIAL_HPP
#define KFUSE_BACKENDS_GPU_EXPONENTIAL_HPP

#include <kfuse/backends/host/arithmetic.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace kfuse::gpu {

// x, or 2048 with its sign (and a little more) where |x| is larger, as 2^x is infinite or zero there. A quiet NaN
// stays one.
KOKKOS_INLINE_FUNCTION double within_2048(double x) {
  constexpr std::uint32_t limit = 0x40a00000, infinity = 0x7ff00000;  // upper halves of doubles
  auto const bits = Kokkos::bit_cast<std::uint64_t>(x);
  auto const high = std::uint32_t(bits >> 32), magnitude = high & 0x7fffffffu;
  std::uint32_t const bounded = magnitude - limit <= infinity - limit ? (high & 0x80000000u) | limit : high;
  return Kokkos::bit_cast<double>(std::uint64_t(bounded) << 32 | std::uint32_t(bits));
}

// Added to a number below 2^31, it leaves the nearest integer in the lower bits.
constexpr double rounding = 6755399441055744.0;  // 3 2^51

// 2^(f + 1) for |f| <= 1/2. The polynomial has a relative error of 3e-16.
struct PowerOfTwo {
  static constexpr host::Coefficients<11> coefficients{0x1.e3994d51379a6p-27,
                                                       0x1.b6741027c6911p-23,
                                                       0x1.62c157d2e61d9p-19,
                                                       0x1.ffcb55e8095e5p-16,
                                                       0x1.4309126061413p-12,
                                                       0x1.5d87fe9cc5bd8p-9,
                                                       0x1.3b2ab6fbde0c2p-6,
                                                       0x1.c6b08d703d48dp-4,
                                                       0x1.ebfbdff82c3b9p-2,
                                                       0x1.62e42fefa3a17p+0,
                                                       2.0};
};

// power 2^(n - 1) for the integer n in the lower bits of `shifted`, where `power` is about 2: 2^n alone would be
// infinite where the result is not. Zero below 2^-1021.5, though 2^-1022 is the smallest normal number.
KOKKOS_INLINE_FUNCTION double scaled(double power, double shifted) {
  int n = int(std::uint32_t(Kokkos::bit_cast<std::uint64_t>(shifted)));
  n = n < -1022 ? -1022 : n > 1025 ? 1025 : n;  // whose bits are those of zero and infinity
  return power * Kokkos::bit_cast<double>(std::uint64_t(std::uint32_t(n + 1022)) << 52);
}

// 2^x. `polynomial` evaluates PowerOfTwo.
template <class F>
KOKKOS_FUNCTION double exp2(double x, F const& polynomial) {
  double const bounded = within_2048(x), shifted = bounded + rounding;
  return scaled(polynomial(bounded - (shifted - rounding)), shifted);
}

// e^x. The nearest multiple of ln(2) is taken off in two parts (Cody, Waite 1980).
template <class F>
KOKKOS_FUNCTION double exp(double x, F const& polynomial) {
  constexpr double log2_e = 0x1.71547652b82fep+0, ln_2 = 0x1.62e42fefa39efp-1, ln_2_rest = 0x1.abc9e3b39803fp-56;
  double const bounded = within_2048(x), shifted = Kokkos::fma(bounded, log2_e, rounding), n = shifted - rounding;
  double const rest = Kokkos::fma(-n, ln_2_rest, Kokkos::fma(-n, ln_2, bounded));
  return scaled(polynomial(rest * log2_e), shifted);
}

}  // namespace kfuse::gpu

#endif
