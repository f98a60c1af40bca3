// SPDX-License-Identifier: Apache-2.0
// Conversions and functions that AMD GPUs have instructions for.
#ifndef KFUSE_BACKENDS_HIP_ARITHMETIC_HPP
#define KFUSE_BACKENDS_HIP_ARITHMETIC_HPP

#include <kfuse/backends/gpu/exponential.hpp>
#include <kfuse/backends/host/arithmetic.hpp>

namespace kfuse::hip {

using host::add;
using host::bf16_bits;
using host::bf16_pair_bits;
using host::Coefficients;
using host::divide;
using host::polynomial;
using host::reciprocal_sqrt;

KOKKOS_INLINE_FUNCTION double reciprocal(double x) {
  return host::reciprocal(x);
}
KOKKOS_INLINE_FUNCTION float reciprocal(float x) {
#if defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_rcpf(x);
#else
  return host::reciprocal(x);
#endif
}

KOKKOS_INLINE_FUNCTION std::uint16_t fp16_bits(float x) {
#if defined(__HIP_DEVICE_COMPILE__)
  return Kokkos::bit_cast<std::uint16_t>(static_cast<_Float16>(x));
#else
  return host::fp16_bits(x);
#endif
}
KOKKOS_INLINE_FUNCTION std::uint32_t fp16_pair_bits(float low, float high) {
  return fp16_bits(low) | std::uint32_t(fp16_bits(high)) << 16;
}
KOKKOS_INLINE_FUNCTION float fp16_value(std::uint16_t bits) {
#if defined(__HIP_DEVICE_COMPILE__)
  return static_cast<float>(Kokkos::bit_cast<_Float16>(bits));
#else
  return host::fp16_value(bits);
#endif
}

KOKKOS_INLINE_FUNCTION double exp2(double x) {
#if defined(__HIP_DEVICE_COMPILE__)
  return gpu::exp2(x, [](double f) { return polynomial<gpu::PowerOfTwo>(f); });
#else
  return host::exp2(x);
#endif
}
KOKKOS_INLINE_FUNCTION double exp(double x) {
#if defined(__HIP_DEVICE_COMPILE__)
  return gpu::exp(x, [](double f) { return polynomial<gpu::PowerOfTwo>(f); });
#else
  return host::exp(x);
#endif
}
KOKKOS_INLINE_FUNCTION float exp(float x) {
  return host::exp(x);
}
// Results below 2^-126 become zero.
KOKKOS_INLINE_FUNCTION float exp2(float x) {
#if defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_exp2f(x);
#else
  return host::exp2(x);
#endif
}

}  // namespace kfuse::hip

#endif
