// SPDX-License-Identifier: Apache-2.0
// Element types as they lie in memory, and the type their sums are kept in.
//
// Kokkos' half_t and bhalf_t are 4-byte floats in host builds, so the storage types are our own: two bytes, or one, on
// every backend. They hold bits and compute nothing; kernels work in Real<Element>.
#ifndef KFUSE_CORE_ELEMENT_HPP
#define KFUSE_CORE_ELEMENT_HPP

#include <kfuse/backends/backend.hpp>
#include <kfuse/core/element_type.hpp>

#include <Kokkos_Core.hpp>

#include <concepts>
#include <cstdint>

namespace kfuse {

// 8 exponent and 7 mantissa bits: the upper half of a float.
struct bf16 {
  std::uint16_t bits;
};
// IEEE 754 binary16: 5 exponent and 10 mantissa bits, largest 65504.
struct fp16 {
  std::uint16_t bits;
};
// OCP 8-bit floats, for storage. e4m3: no infinity, largest 448, NaN 0x7f. e5m2: IEEE-like, largest 57344.
struct fp8_e4m3 {
  std::uint8_t bits;
};
struct fp8_e5m2 {
  std::uint8_t bits;
};

namespace impl {
// Of what is no element type. It has all that others have, so that the sentence is not lost among other errors.
template <class Element>
struct ElementTraits {
  static_assert(
      sizeof(Element) == 0,
      "kfuse: element types are double, float, kfuse::bf16 and kfuse::fp16, and to store 8 bits kfuse::fp8_e4m3 "
      "and kfuse::fp8_e5m2; of Kokkos' half_t and bhalf_t on GPUs, make a View<kfuse::fp16> or "
      "View<kfuse::bf16> of the same memory");
  using real = float;
  static constexpr ElementType type = ElementType::fp32;
};
template <>
struct ElementTraits<double> {
  using real = double;
  static constexpr ElementType type = ElementType::fp64;
};
template <>
struct ElementTraits<float> {
  using real = float;
  static constexpr ElementType type = ElementType::fp32;
};
template <>
struct ElementTraits<bf16> {
  using real = float;
  static constexpr ElementType type = ElementType::bf16;
};
template <>
struct ElementTraits<fp16> {
  using real = float;
  static constexpr ElementType type = ElementType::fp16;
};
template <>
struct ElementTraits<fp8_e4m3> {
  using real = float;
  static constexpr ElementType type = ElementType::fp8_e4m3;
};
template <>
struct ElementTraits<fp8_e5m2> {
  using real = float;
  static constexpr ElementType type = ElementType::fp8_e5m2;
};
}  // namespace impl

// What values are computed and summed in: double for double, float for everything narrower.
template <class Element>
using Real = typename impl::ElementTraits<Element>::real;

template <class Element>
constexpr ElementType element_type = impl::ElementTraits<Element>::type;

// Of what is no element type, which ElementTraits says.
template <class Element>
KOKKOS_FUNCTION float to_real(Element) {
  return Real<Element>(0);
}
KOKKOS_INLINE_FUNCTION double to_real(double x) {
  return x;
}
KOKKOS_INLINE_FUNCTION float to_real(float x) {
  return x;
}
KOKKOS_INLINE_FUNCTION float to_real(bf16 x) {
  return Kokkos::bit_cast<float>(std::uint32_t(x.bits) << 16);
}
KOKKOS_INLINE_FUNCTION float to_real(fp16 x) {
  return backend::fp16_value(x.bits);
}
KOKKOS_INLINE_FUNCTION float to_real(fp8_e4m3 x) {
  return host::widen_bits<4, 3, false>(x.bits);
}
KOKKOS_INLINE_FUNCTION float to_real(fp8_e5m2 x) {
  return host::widen_bits<5, 2, true>(x.bits);
}

namespace impl {
KOKKOS_INLINE_FUNCTION float for_rounding(float x) {
  return x;
}
// x cut off, with the last bit set if anything was lost: rounding this is the same as rounding x, and rounding to float
// first is not.
KOKKOS_INLINE_FUNCTION float for_rounding(double x) {
  auto const nearest = float(x);
  if (double(nearest) == x || x != x) return nearest;
  auto const bits = Kokkos::bit_cast<std::uint32_t>(nearest);
  bool const away = Kokkos::abs(double(nearest)) > Kokkos::abs(x);
  return Kokkos::bit_cast<float>((away ? bits - 1 : bits) | 1u);
}
}  // namespace impl

// Rounds to nearest, ties to even; NaN stays NaN. What is too large becomes infinity, or NaN where there is none.
template <class Element>
KOKKOS_FUNCTION Element from_real(std::floating_point auto x) {
  if constexpr (std::floating_point<Element>)
    return Element(x);
  else if constexpr (std::same_as<Element, bf16>)
    return {backend::bf16_bits(impl::for_rounding(x))};
  else if constexpr (std::same_as<Element, fp16>)
    return {backend::fp16_bits(impl::for_rounding(x))};
  else if constexpr (std::same_as<Element, fp8_e4m3>)
    return {std::uint8_t(host::narrow_bits<4, 3>(impl::for_rounding(x), 0x7e, 0x7f, 0x7f))};
  else
    return {std::uint8_t(host::narrow_bits<5, 2>(impl::for_rounding(x), 0x7b, 0x7c, 0x7e))};
}

}  // namespace kfuse

#endif
