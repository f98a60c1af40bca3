// SPDX-License-Identifier: Apache-2.0
// SwiGLU (Shazeer 2020), the gate of a gated feed-forward layer:
//   y(r, c) = silu(gate(r, c)) * up(r, c),  silu(g) = g / (1 + exp(-g))
//
// The chain load | silu | multiply | store. Gate and up are the halves of each row of one matrix, gate first, as one
// product with both weights leaves them; or two matrices. silu(gate) is not rounded before it is multiplied.
#ifndef KFUSE_FUSED_SWIGLU_HPP
#define KFUSE_FUSED_SWIGLU_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/activation.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>

#include <string>
#include <string_view>

namespace kfuse {

namespace impl {

template <class Space, Activation activation, TensorLike G, TensorLike U, TensorLike Y>
auto gated_chain(std::string_view where, G const& gate, U const& up, Y const& y) {
  auto const g = tensor_of<2, Space, ElementOf<G> const>(gate, where);
  auto const u = tensor_of<2, Space, ElementOf<U> const>(up, where);
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, where);
  return load(g) | Activate<activation>{} | multiply(u) | store(out);
}
template <class Space, Activation activation, TensorLike X, TensorLike Y>
auto gated_chain(std::string_view where, X const& gate_up, Y const& y) {
  auto const both = tensor_of<2, Space, ElementOf<X> const>(gate_up, where);
  check(both.extent(1) % 2 == 0, where, [&] {
    return "gate_up has " + std::to_string(both.extent(1)) +
           " columns, which are no two halves [gate | up]; give it twice the columns of y";
  });
  int const n = both.extent(1) / 2;
  return gated_chain<Space, activation>(where, columns(both, 0, n), columns(both, n, n), y);
}

}  // namespace impl

// gate_up: [rows, 2 n], the gate in columns [0, n); y: [rows, n]. y may be the gate or the up half of gate_up.
template <class Space, TensorLike X, TensorLike Y>
void swiglu(Space const& space, X const& gate_up, Y const& y) {
  fuse(space, "kfuse::swiglu", impl::gated_chain<Space, Activation::silu>("kfuse::swiglu", gate_up, y));
}
// gate, up, y: [rows, n]. y may be gate or up.
template <class Space, TensorLike G, TensorLike U, TensorLike Y>
void swiglu(Space const& space, G const& gate, U const& up, Y const& y) {
  fuse(space, "kfuse::swiglu", impl::gated_chain<Space, Activation::silu>("kfuse::swiglu", gate, up, y));
}

// The same arguments as above, after the space.
template <class Space, TensorLike... T>
Traffic swiglu_traffic(Space const&, T const&... arguments) {
  return traffic(impl::gated_chain<Space, Activation::silu>("kfuse::swiglu", arguments...));
}

}  // namespace kfuse

#endif
