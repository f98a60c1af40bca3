// SPDX-License-Identifier: Apache-2.0
// Activations, as PyTorch names them. All are finite for finite values; NaN stays NaN. Infinity gives the limit: where
// PyTorch's gelu and silu make NaN of -infinity, ours give zero.
#ifndef KFUSE_FUSED_STAGE_ACTIVATION_HPP
#define KFUSE_FUSED_STAGE_ACTIVATION_HPP

#include <kfuse/core/chain.hpp>

#include <string>
#include <string_view>

namespace kfuse {

namespace impl {

template <class Real>
constexpr Real log2_e = Real(1.442695040888963407359924681001892137L);

// For -infinity the lowest finite number, which times zero is zero. NaN stays NaN.
template <class Real>
KOKKOS_FUNCTION Real finite_below(Real x) {
  constexpr Real lowest = -Kokkos::Experimental::finite_max_v<Real>;
  return x < lowest ? lowest : x;
}

// exp(-|y| / 2). In float, the rounding of a large exponent costs a result that is small anyway.
KOKKOS_INLINE_FUNCTION double root_of_exponential(double y) {
  return backend::exp(-0.5 * Kokkos::abs(y));
}
KOKKOS_INLINE_FUNCTION float root_of_exponential(float y) {
  return backend::exp2(-0.5f * log2_e<float> * Kokkos::abs(y));
}

// x / (1 + exp(-y)), for x above -infinity. By the root of the exponential: exp(y) itself leaves the range of float at
// -88, where the result is still a number of bf16.
template <class Real>
KOKKOS_FUNCTION Real times_sigmoid(Real x, Real y) {
  Real const root = root_of_exponential(y), factor = y < 0 ? root : Real(1);
  return x * factor * factor * backend::reciprocal(Real(1) + root * root);
}

// 1 - Phi(t) = erfc(t / sqrt(2)) / 2 for t >= 0, as u P(u) exp(-t^2 / 2) with u = 1 / (1 + a t).
//
// In double the polynomial has a relative error of 2e-15 for t < 40, and the tail of 3e-15, down to the normal numbers.
struct UpperTail {
  static constexpr backend::Coefficients<19> coefficients{
      0.00204300116435958542, -0.0202851323767826413, 0.090070008927175028,  -0.234653780603759925,
      0.397879218730148312,   -0.467570573790853688,  0.406364505051575146,  -0.27466822565342889,
      0.137411739734219684,   -0.0564340740345491061, 0.0260122942081949766, 0.0145715878998940283,
      0.0340309112651232098,  0.0482411579205319101,  0.0629110059716521426, 0.0750223269357485697,
      0.0835194273065930283,  0.0877672996251655771,  0.0877673017189939754};
};
KOKKOS_INLINE_FUNCTION double upper_tail(double t) {
  double const u = backend::reciprocal(1 + 0.22 * t), p = backend::polynomial<UpperTail>(u);
  double const square = t * t, lost = Kokkos::fma(t, t, -square);  // what the square loses by rounding
  return u * p * backend::exp(-0.5 * square) * (1 - 0.5 * lost);
}
// The polynomial was fitted so that the relative error is below 2e-8 for t < 3 and 5e-6 in the tail. The exponential is
// taken by its root, for the tail's sake. With erfc, gelu takes 49 instructions a value instead of 19 (H200), which is
// more time than its bytes take.
KOKKOS_INLINE_FUNCTION float upper_tail(float t) {
  float const u = backend::reciprocal(1 + 0.295f * t);
  float p = 0.0374365146f;
  p = p * u - 0.173323167f;
  p = p * u + 0.249257465f;
  p = p * u - 0.0911180379f;
  p = p * u + 0.147662491f;
  p = p * u + 0.0929333072f;
  p = p * u + 0.11956265f;
  p = p * u + 0.117588786f;
  float const s = 0.600561204f * t, root = backend::exp2(-s * s);  // s^2 = t^2 / 4 / ln(2)
  return u * p * root * root;
}

// x Phi(x) = max(x, 0) - |x| (1 - Phi(|x|)): nothing cancels on either side.
template <class Real>
KOKKOS_FUNCTION Real gelu(Real x) {
  constexpr Real far = 40;  // where the tail is zero in double, too
  Real const magnitude = Kokkos::abs(x), t = magnitude < far ? magnitude : far;
  return (x < 0 ? Real(0) : x) - t * upper_tail(t);
}

}  // namespace impl

enum class Activation { none, relu, gelu, gelu_tanh, gelu_quick, silu, sigmoid, tanh };

// relu:        max(x, 0)
// gelu:        x Phi(x) = x / 2 (1 + erf(x / sqrt(2)))
// gelu_tanh:   x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))  (Hendrycks, Gimpel 2016), as a sigmoid
// gelu_quick:  x sigmoid(1.702 x)  (the same paper)
// silu:        x sigmoid(x)
// sigmoid:     1 / (1 + exp(-x))
// tanh
template <Activation activation, class Real>
KOKKOS_FUNCTION Real activate(Real x) {
  if constexpr (activation == Activation::relu)
    return x < 0 ? Real(0) : x;
  else if constexpr (activation == Activation::gelu)
    return impl::gelu(x);
  else if constexpr (activation == Activation::gelu_tanh)
    return impl::times_sigmoid(impl::finite_below(x), Real(1.595769121605730711759542392786846847L) *
                                                          (x + Real(0.044715) * x * x * x));  // 2 sqrt(2 / pi)
  else if constexpr (activation == Activation::gelu_quick)
    return impl::times_sigmoid(impl::finite_below(x), Real(1.702) * x);
  else if constexpr (activation == Activation::silu)
    return impl::times_sigmoid(impl::finite_below(x), x);
  else if constexpr (activation == Activation::sigmoid)
    return impl::times_sigmoid(Real(1), x);
  else if constexpr (activation == Activation::tanh)
    return Kokkos::tanh(x);
  else
    return x;
}

template <Activation activation>
struct Activate {
  using stage = ElementStage;
  static constexpr int flops = activation == Activation::none                                        ? 0
                               : activation == Activation::relu                                      ? 1
                               : activation == Activation::silu || activation == Activation::sigmoid ? 4
                                                                                                     : 8;
  static constexpr int extra_registers = 8;
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place) const {
#pragma unroll  // values that are counted through by a loop would leave their registers
    for (auto& v : x) v = activate<activation>(v);
  }
};

// y = cap tanh(x / cap)
struct Softcap {
  using stage = ElementStage;
  static constexpr int flops = 8;
  static constexpr int extra_registers = 16;
  double cap;

  void check(std::string_view where, Shape) const {
    impl::check(cap >= 1e-30 && cap <= 1e30, where, [&] {
      return "softcap: cap must be positive and finite, within 1e-30 to 1e30 (it is computed with in float), and is " +
             impl::number_text(cap) + "; choose one there, or cap nothing";
    });
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place) const {
    using Real = typename X::Real;
#pragma unroll
    for (auto& v : x) v = Real(cap) * Kokkos::tanh(v * Real(1 / cap));
  }
};

// y = min(max(x, low), high); NaN stays NaN
struct Clamp {
  using stage = ElementStage;
  static constexpr int flops = 2;
  double low, high;

  void check(std::string_view where, Shape) const {
    impl::check(low <= high, where, [&] {
      return "clamp: low must not be above high, and neither may be NaN (no value would lie between), and they are " +
             impl::number_text(low) + " and " + impl::number_text(high) +
             "; exchange them, or give an infinity for none";
    });
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place) const {
    auto const least = typename X::Real(low), most = typename X::Real(high);
    for (auto& v : x) v = v < least ? least : v > most ? most : v;
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
constexpr Activate<Activation::gelu_quick> gelu_quick() {
  return {};
}
constexpr Activate<Activation::silu> silu() {
  return {};
}
constexpr Activate<Activation::sigmoid> sigmoid() {
  return {};
}
constexpr Activate<Activation::tanh> tanh() {
  return {};
}
constexpr Softcap softcap(double cap) {
  return {cap};
}
// Either bound may be an infinity.
constexpr Clamp clamp(double low, double high) {
  return {low, high};
}

namespace impl {

// The stage of an activation that is known at run time.
struct ActivateChosen {
  using stage = ElementStage;
  static constexpr int flops = Activate<Activation::gelu>::flops;
  static constexpr int extra_registers = 12;

  Activation activation;

  void check(std::string_view where, Shape) const {
    impl::check_one_of(activation, Activation::tanh, where, "activation");
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    switch (activation) {
      case Activation::none:
        break;
      case Activation::relu:
        return Activate<Activation::relu>{}.apply(x, at);
      case Activation::gelu:
        return Activate<Activation::gelu>{}.apply(x, at);
      case Activation::gelu_tanh:
        return Activate<Activation::gelu_tanh>{}.apply(x, at);
      case Activation::gelu_quick:
        return Activate<Activation::gelu_quick>{}.apply(x, at);
      case Activation::silu:
        return Activate<Activation::silu>{}.apply(x, at);
      case Activation::sigmoid:
        return Activate<Activation::sigmoid>{}.apply(x, at);
      case Activation::tanh:
        return Activate<Activation::tanh>{}.apply(x, at);
    }
  }
};

}  // namespace impl

}  // namespace kfuse

#endif
