// SPDX-License-Identifier: Apache-2.0
// Conversions and functions that NVIDIA GPUs have instructions for.
#ifndef KFUSE_BACKENDS_CUDA_ARITHMETIC_HPP
#define KFUSE_BACKENDS_CUDA_ARITHMETIC_HPP

#include <kfuse/backends/gpu/exponential.hpp>
#include <kfuse/backends/host/arithmetic.hpp>

namespace kfuse::cuda {

using host::Coefficients;

KOKKOS_INLINE_FUNCTION std::uint32_t bf16_pair_bits(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
#else
  return host::bf16_pair_bits(low, high);
#endif
}
KOKKOS_INLINE_FUNCTION std::uint16_t bf16_bits(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#else
  return host::bf16_bits(x);
#endif
}
KOKKOS_INLINE_FUNCTION std::uint32_t fp16_pair_bits(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
#else
  return host::fp16_pair_bits(low, high);
#endif
}
KOKKOS_INLINE_FUNCTION std::uint16_t fp16_bits(float x) {
#if defined(__CUDA_ARCH__)
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#else
  return host::fp16_bits(x);
#endif
}
KOKKOS_INLINE_FUNCTION float fp16_value(std::uint16_t bits) {
#if defined(__CUDA_ARCH__)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
#else
  return host::fp16_value(bits);
#endif
}

// In memory for constants: as literals, each would take two instructions more.
template <class P>
static __constant__ auto coefficients_of = P::coefficients;
template <class P>
KOKKOS_FUNCTION double polynomial(double x) {
#if defined(__CUDA_ARCH__)
  double sum = coefficients_of<P>.of[0];
#pragma unroll
  for (int i = 1; i < P::coefficients.count; ++i) sum = fma(sum, x, coefficients_of<P>.of[i]);
  return sum;
#else
  return host::polynomial<P>(x);
#endif
}

KOKKOS_INLINE_FUNCTION double exp2(double x) {
#if defined(__CUDA_ARCH__)
  return gpu::exp2(x, [](double f) { return polynomial<gpu::PowerOfTwo>(f); });
#else
  return host::exp2(x);
#endif
}
KOKKOS_INLINE_FUNCTION float exp2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return host::exp2(x);
#endif
}

KOKKOS_INLINE_FUNCTION double exp(double x) {
#if defined(__CUDA_ARCH__)
  return gpu::exp(x, [](double f) { return polynomial<gpu::PowerOfTwo>(f); });
#else
  return host::exp(x);
#endif
}
// By the instruction for powers of two. What the rounded exponent lacks is multiplied in: for large exponents it would
// cost five digits.
KOKKOS_INLINE_FUNCTION float exp(float x) {
#if defined(__CUDA_ARCH__)
  constexpr float log2_e = 1.44269504f, log2_e_rest = 1.92596303e-8f, ln_2 = 0.693147181f;
  float const bounded = x > 150 ? 150 : x < -150 ? -150 : x;
  float const exponent = bounded * log2_e;
  float const rest = fmaf(bounded, log2_e, -exponent) + bounded * log2_e_rest;
  return exp2(exponent) * fmaf(rest, ln_2, 1.0f);
#else
  return host::exp(x);
#endif
}

KOKKOS_INLINE_FUNCTION double add(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dadd_rn(a, b);
#else
  return host::add(a, b);
#endif
}
KOKKOS_INLINE_FUNCTION float add(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return host::add(a, b);
#endif
}
KOKKOS_INLINE_FUNCTION double divide(double a, double b) {
  return a / b;
}
KOKKOS_INLINE_FUNCTION float divide(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdividef(a, b);
#else
  return host::divide(a, b);
#endif
}
// The instruction gives 20 bits; what is missing is 1 / (1 - e) = 1 + e + e^2 + ... of it.
KOKKOS_INLINE_FUNCTION double reciprocal(double x) {
#if defined(__CUDA_ARCH__)
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  double const e = fma(-x, y, 1.0);
  return fma(y, fma(e, e, e), y);
#else
  return host::reciprocal(x);
#endif
}
KOKKOS_INLINE_FUNCTION float reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return host::reciprocal(x);
#endif
}
KOKKOS_INLINE_FUNCTION double reciprocal_sqrt(double x) {
#if defined(__CUDA_ARCH__)
  return rsqrt(x);
#else
  return host::reciprocal_sqrt(x);
#endif
}
KOKKOS_INLINE_FUNCTION float reciprocal_sqrt(float x) {
  return host::reciprocal_sqrt(x);
}

}  // namespace kfuse::cuda

#endif
