// SPDX-License-Identifier: Apache-2.0
// GeGLU (Shazeer 2020): y(r, c) = gelu(gate(r, c)) * up(r, c). Otherwise as swiglu.hpp.
#ifndef KFUSE_FUSED_GEGLU_HPP
#define KFUSE_FUSED_GEGLU_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/gate.hpp>

#include <type_traits>

namespace kfuse {

// PyTorch's `approximate` of GELU: none is x Phi(x), by erf; tanh is Hugging Face's gelu_pytorch_tanh, as in Gemma.
enum class GeluApproximate { none, tanh };

struct GegluOptions {
  GateLayout layout = GateLayout::halves;
  GeluApproximate approximate = GeluApproximate::none;
};

namespace impl {

// f(an integral_constant of the activation).
template <class F>
auto with_gelu(GeluApproximate approximate, F const& f) {
  check_one_of(approximate, GeluApproximate::tanh, "kfuse::geglu", "options.approximate");
  if (approximate == GeluApproximate::tanh) return f(std::integral_constant<Activation, Activation::gelu_tanh>());
  return f(std::integral_constant<Activation, Activation::gelu>());
}

}  // namespace impl

// gate_up: [rows, 2 n], a gate and an up for each value of y, in the layout of `options`; y: [rows, n]. In halves, y
// may be the gate or the up of gate_up. All may differ in element type.
template <class Space, TensorLike X, TensorLike Y>
void geglu(Space const& space, X const& gate_up, Y const& y, GegluOptions const& options = {}) {
  impl::with_gelu(options.approximate, [&](auto gelu) {
    impl::gated<decltype(gelu)::value>(space, "kfuse::geglu", gate_up, y, options.layout);
  });
}
// gate, up, y: [rows, n]. y may be gate or up.
template <class Space, TensorLike G, TensorLike U, TensorLike Y>
void geglu(Space const& space, G const& gate, U const& up, Y const& y,
           GeluApproximate approximate = GeluApproximate::none) {
  impl::with_gelu(approximate,
                  [&](auto gelu) { impl::gated<decltype(gelu)::value>(space, "kfuse::geglu", gate, up, y); });
}

// The same arguments as above.
template <class Space, TensorLike X, TensorLike Y>
Traffic geglu_traffic(Space const&, X const& gate_up, Y const& y, GegluOptions const& options = {}) {
  return impl::with_gelu(options.approximate, [&](auto gelu) {
    return impl::gated_traffic<Space, decltype(gelu)::value>("kfuse::geglu", gate_up, y, options.layout);
  });
}
template <class Space, TensorLike G, TensorLike U, TensorLike Y>
Traffic geglu_traffic(Space const&, G const& gate, U const& up, Y const& y,
                      GeluApproximate approximate = GeluApproximate::none) {
  return impl::with_gelu(approximate, [&](auto gelu) {
    return traffic(impl::gated_chain<Space, decltype(gelu)::value>("kfuse::geglu", gate, up, y));
  });
}

}  // namespace kfuse

#endif
