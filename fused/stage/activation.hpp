// SPDX-License-Identifier: Apache-2.0
// Activations, as PyTorch names them. All are finite for finite values; NaN stays NaN.
#ifndef KFUSE_FUSED_STAGE_ACTIVATION_HPP
#define KFUSE_FUSED_STAGE_ACTIVATION_HPP

#include <kfuse/core/chain.hpp>

namespace kfuse {

namespace impl {

template <class Real>
constexpr Real log2_e = Real(1.442695040888963407359924681001892137L);

// x / (1 + exp(-y)). Both sides of the division are scaled, so that the divisor stays in the range of fast division for
// all exponentials that are finite.
template <class Real>
KOKKOS_FUNCTION Real times_sigmoid(Real x, Real y) {
  constexpr Real scale = Real(1) / 16;
  return backend::divide(x * scale, scale + scale * backend::exp(-y));
}

}  // namespace impl

enum class Activation { none, relu, gelu, gelu_tanh, silu };

// relu:       max(x, 0)
// gelu:       x Phi(x) = x / 2 (1 + erf(x / sqrt(2))) = x / 2 erfc(-x / sqrt(2))
// gelu_tanh:  x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))  (Hendrycks, Gimpel 2016), as a sigmoid
// silu:       x / (1 + exp(-x))
template <Activation activation, class Real>
KOKKOS_FUNCTION Real activate(Real x) {
  if constexpr (activation == Activation::relu)
    return x < 0 ? Real(0) : x;
  else if constexpr (activation == Activation::gelu)
    return Real(0.5) * x * Kokkos::erfc(x * Real(-0.707106781186547524400844362104849039L));  // 1 + erf cancels
  else if constexpr (activation == Activation::gelu_tanh)
    return impl::times_sigmoid(
        x, Real(1.595769121605730711759542392786846847L) * (x + Real(0.044715) * x * x * x));  // 2 sqrt(2 / pi)
  else if constexpr (activation == Activation::silu)
    return impl::times_sigmoid(x, x);
  else
    return x;
}

template <Activation activation>
struct Activate {
  using stage = ElementStage;
  static constexpr int flops = activation == Activation::relu ? 1 : activation == Activation::silu ? 4 : 8;
  static constexpr int extra_registers = activation == Activation::gelu || activation == Activation::silu ? 16 : 8;
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place) const {
#pragma unroll  // values that are counted through by a loop would leave their registers
    for (auto& v : x) v = activate<activation>(v);
  }
};

constexpr Activate<Activation::relu> relu() {
  return {};
}
constexpr Activate<Activation::gelu> gelu() {
  return {};
}
constexpr Activate<Activation::gelu_tanh> gelu_tanh() {
  return {};
}
constexpr Activate<Activation::silu> silu() {
  return {};
}

}  // namespace kfuse

#endif
