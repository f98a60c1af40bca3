// SPDX-License-Identifier: Apache-2.0
// Conversions and functions in portable arithmetic: what every backend offers, and what it falls back on.
#ifndef KFUSE_BACKENDS_HOST_ARITHMETIC_HPP
#define KFUSE_BACKENDS_HOST_ARITHMETIC_HPP

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace kfuse::host {

// Bits of a small float with `exponent` and `mantissa` bits (IEEE 754 layout, subnormals included) for `x`, rounded to
// nearest, ties to even. Values too large become `overflow`; NaN becomes `nan`. The sign is added here.
template <int exponent, int mantissa>
KOKKOS_FUNCTION constexpr std::uint32_t narrow_bits(float x, std::uint32_t largest, std::uint32_t overflow,
                                                    std::uint32_t nan) {
  constexpr int bias = (1 << (exponent - 1)) - 1;
  auto const u = Kokkos::bit_cast<std::uint32_t>(x);
  std::uint32_t const sign = (u >> 31) << (exponent + mantissa);
  std::uint32_t const magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | nan;
  int const e = int(magnitude >> 23) - 127 + bias;
  // The significand with its hidden bit, to be shifted right until `mantissa` bits are left below the point.
  std::uint32_t const significand = (magnitude & 0x7fffffu) | (magnitude >= 0x800000u ? 0x800000u : 0);
  int const shift = 23 - mantissa + (e < 1 ? 1 - e : 0);
  if (shift > 25) return sign;
  std::uint32_t const kept = significand >> shift;
  std::uint32_t const rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
  std::uint32_t const up = rest > half || (rest == half && (kept & 1)) ? 1 : 0;
  std::uint32_t const bits = (e > 1 ? std::uint32_t(e - 1) << mantissa : 0) + kept + up;
  return sign | (bits > largest ? overflow : bits);
}

// The float of such bits. With `has_infinity`, the top exponent means infinity or NaN, as in IEEE 754.
template <int exponent, int mantissa, bool has_infinity>
KOKKOS_FUNCTION constexpr float widen_bits(std::uint32_t bits) {
  constexpr int bias = (1 << (exponent - 1)) - 1;
  constexpr std::uint32_t top = (1u << exponent) - 1;
  std::uint32_t const sign = (bits >> (exponent + mantissa)) << 31;
  std::uint32_t const e = (bits >> mantissa) & top;
  std::uint32_t const m = bits & ((1u << mantissa) - 1);
  if (has_infinity && e == top) return Kokkos::bit_cast<float>(sign | 0x7f800000u | (m << (23 - mantissa)));
  if (!has_infinity && e == top && m == (1u << mantissa) - 1) return Kokkos::bit_cast<float>(sign | 0x7fc00000u);
  if (e > 0) return Kokkos::bit_cast<float>(sign | ((e + 127 - bias) << 23) | (m << (23 - mantissa)));
  // Subnormal: m * 2^(1 - bias - mantissa), exact in float.
  float const unit = Kokkos::bit_cast<float>(std::uint32_t(127 + 1 - bias - mantissa) << 23);
  return Kokkos::bit_cast<float>(sign | Kokkos::bit_cast<std::uint32_t>(float(m) * unit));
}

KOKKOS_INLINE_FUNCTION std::uint16_t bf16_bits(float x) {
  auto const u = Kokkos::bit_cast<std::uint32_t>(x);
  std::uint32_t const rounded = u + 0x7fff + ((u >> 16) & 1), quiet_nan = u | 0x400000;
  return std::uint16_t((x == x ? rounded : quiet_nan) >> 16);  // a choice of numbers, not of ways
}
KOKKOS_INLINE_FUNCTION std::uint16_t fp16_bits(float x) {
  return std::uint16_t(narrow_bits<5, 10>(x, 0x7bff, 0x7c00, 0x7e00));
}
KOKKOS_INLINE_FUNCTION float fp16_value(std::uint16_t bits) {
  return widen_bits<5, 10, true>(bits);
}

// Two values side by side in memory order, `low` first.
KOKKOS_INLINE_FUNCTION std::uint32_t bf16_pair_bits(float low, float high) {
  return bf16_bits(low) | std::uint32_t(bf16_bits(high)) << 16;
}
KOKKOS_INLINE_FUNCTION std::uint32_t fp16_pair_bits(float low, float high) {
  return fp16_bits(low) | std::uint32_t(fp16_bits(high)) << 16;
}

// Of a polynomial, the highest power's first.
template <int n>
struct Coefficients {
  static constexpr int count = n;
  double of[n];
};
// The polynomial P::coefficients, by Horner's rule.
template <class P>
KOKKOS_FUNCTION double polynomial(double x) {
  double sum = P::coefficients.of[0];
  for (int i = 1; i < P::coefficients.count; ++i) sum = sum * x + P::coefficients.of[i];
  return sum;
}

KOKKOS_INLINE_FUNCTION float exp(float x) {
  return Kokkos::exp(x);
}
KOKKOS_INLINE_FUNCTION double exp(double x) {
  return Kokkos::exp(x);
}

// a + b, each rounded, whatever a and b are the results of: where compilers joined a product with the sum after it, a
// stage's bits would depend on the kernel it stands in. GCC, which knows no pragma for it and forgets its barriers when
// it vectorises, has its own instruction for a product and a sum taken by a * 1 + b.
KOKKOS_INLINE_FUNCTION float add(float a, float b) {
#if defined(__FP_FAST_FMAF) && !defined(__clang__)
  return Kokkos::fma(a, 1.0f, b);
#else
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
  return a + b;
#endif
}
KOKKOS_INLINE_FUNCTION double add(double a, double b) {
#if defined(__FP_FAST_FMA) && !defined(__clang__)
  return Kokkos::fma(a, 1.0, b);
#else
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
  return a + b;
#endif
}

// 2^x, a / b and 1 / x, to a few units in the last place. For b above 2^126 the quotient may be zero instead, and so
// may powers and reciprocals below 2^-126 (of double, powers below 2^-1021). Reciprocals are of normal numbers up to
// 2^1021: of others they may be NaN or zero.
KOKKOS_INLINE_FUNCTION float exp2(float x) {
  return Kokkos::exp2(x);
}
KOKKOS_INLINE_FUNCTION double exp2(double x) {
  return Kokkos::exp2(x);
}
KOKKOS_INLINE_FUNCTION float divide(float a, float b) {
  return a / b;
}
KOKKOS_INLINE_FUNCTION double divide(double a, double b) {
  return a / b;
}
KOKKOS_INLINE_FUNCTION float reciprocal(float x) {
  return 1 / x;
}
KOKKOS_INLINE_FUNCTION double reciprocal(double x) {
  return 1 / x;
}
KOKKOS_INLINE_FUNCTION float reciprocal_sqrt(float x) {
  return 1 / Kokkos::sqrt(x);
}
KOKKOS_INLINE_FUNCTION double reciprocal_sqrt(double x) {
  return 1 / Kokkos::sqrt(x);
}

}  // namespace kfuse::host

#endif
