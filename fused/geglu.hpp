// SPDX-License-Identifier: Apache-2.0
// GeGLU (Shazeer 2020): y(r, c) = gelu(gate(r, c)) * up(r, c), with the gelu of erf. Otherwise as swiglu.hpp.
#ifndef KFUSE_FUSED_GEGLU_HPP
#define KFUSE_FUSED_GEGLU_HPP

#include <kfuse/fused/swiglu.hpp>

namespace kfuse {

// gate_up: [rows, 2 n], the gate in columns [0, n); y: [rows, n]. y may be the gate or the up half of gate_up.
template <class Space, TensorLike X, TensorLike Y>
void geglu(Space const& space, X const& gate_up, Y const& y) {
  fuse(space, "kfuse::geglu", impl::gated_chain<Space, Activation::gelu>("kfuse::geglu", gate_up, y));
}
// gate, up, y: [rows, n]. y may be gate or up.
template <class Space, TensorLike G, TensorLike U, TensorLike Y>
void geglu(Space const& space, G const& gate, U const& up, Y const& y) {
  fuse(space, "kfuse::geglu", impl::gated_chain<Space, Activation::gelu>("kfuse::geglu", gate, up, y));
}

// The same arguments as above, after the space.
template <class Space, TensorLike... T>
Traffic geglu_traffic(Space const&, T const&... arguments) {
  return traffic(impl::gated_chain<Space, Activation::gelu>("kfuse::geglu", arguments...));
}

}  // namespace kfuse

#endif
