// SPDX-License-Identifier: Apache-2.0
// SwiGLU (Shazeer 2020), the gate of a gated feed-forward layer:
//   y(r, c) = silu(gate(r, c)) * up(r, c),  silu(g) = g / (1 + exp(-g))
// One kernel that reads gate and up once, from one matrix in either layout or from two (stage/gate.hpp).
#ifndef KFUSE_FUSED_SWIGLU_HPP
#define KFUSE_FUSED_SWIGLU_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/gate.hpp>

namespace kfuse {

// gate_up: [rows, 2 n], a gate and an up for each value of y, in the layout of `options`; y: [rows, n]. In halves, y
// may be the gate or the up of gate_up. All may differ in element type.
template <class Space, TensorLike X, TensorLike Y>
void swiglu(Space const& space, X const& gate_up, Y const& y, GateOptions const& options = {}) {
  impl::gated<Activation::silu>(space, "kfuse::swiglu", gate_up, y, options.layout);
}
// gate, up, y: [rows, n]. y may be gate or up.
template <class Space, TensorLike G, TensorLike U, TensorLike Y>
void swiglu(Space const& space, G const& gate, U const& up, Y const& y) {
  impl::gated<Activation::silu>(space, "kfuse::swiglu", gate, up, y);
}

// The same arguments as above.
template <class Space, TensorLike X, TensorLike Y>
Traffic swiglu_traffic(Space const&, X const& gate_up, Y const& y, GateOptions const& options = {}) {
  return impl::gated_traffic<Space, Activation::silu>("kfuse::swiglu", gate_up, y, options.layout);
}
template <class Space, TensorLike G, TensorLike U, TensorLike Y>
Traffic swiglu_traffic(Space const&, G const& gate, U const& up, Y const& y) {
  return traffic(impl::gated_chain<Space, Activation::silu>("kfuse::swiglu", gate, up, y));
}

}  // namespace kfuse

#endif
