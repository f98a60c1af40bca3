// SPDX-License-Identifier: Apache-2.0
// ReGLU (Shazeer 2020): y(r, c) = max(gate(r, c), 0) * up(r, c). Otherwise as swiglu.hpp.
#ifndef KFUSE_FUSED_REGLU_HPP
#define KFUSE_FUSED_REGLU_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/gate.hpp>

namespace kfuse {

// gate_up: [rows, 2 n], a gate and an up for each value of y, in the layout of `options`; y: [rows, n]. In halves, y
// may be the gate or the up of gate_up. All may differ in element type.
template <class Space, TensorLike X, TensorLike Y>
void reglu(Space const& space, X const& gate_up, Y const& y, GateOptions const& options = {}) {
  impl::gated<Activation::relu>(space, "kfuse::reglu", gate_up, y, options.layout);
}
// gate, up, y: [rows, n]. y may be gate or up.
template <class Space, TensorLike G, TensorLike U, TensorLike Y>
void reglu(Space const& space, G const& gate, U const& up, Y const& y) {
  impl::gated<Activation::relu>(space, "kfuse::reglu", gate, up, y);
}

// The same arguments as above.
template <class Space, TensorLike X, TensorLike Y>
Traffic reglu_traffic(Space const&, X const& gate_up, Y const& y, GateOptions const& options = {}) {
  return impl::gated_traffic<Space, Activation::relu>("kfuse::reglu", gate_up, y, options.layout);
}
template <class Space, TensorLike G, TensorLike U, TensorLike Y>
Traffic reglu_traffic(Space const&, G const& gate, U const& up, Y const& y) {
  return traffic(impl::gated_chain<Space, Activation::relu>("kfuse::reglu", gate, up, y));
}

}  // namespace kfuse

#endif
