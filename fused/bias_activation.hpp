// SPDX-License-Identifier: Apache-2.0
// Bias and activation after a product whose library has no such epilogue, and with a mask:
//   y(r, c) = activation(x(r, c) + bias(c))
//   y(r, c) = mask(r, c) ? activation(x(r, c) + bias(c)) : value
//
// The chain load | bias | activation | mask | store. The activation is chosen at run time: one branch for a pack of
// values costs nothing beside their bytes, and saves a set of kernels for each activation.
#ifndef KFUSE_FUSED_BIAS_ACTIVATION_HPP
#define KFUSE_FUSED_BIAS_ACTIVATION_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/activation.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/mask.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace kfuse {

namespace impl {

// load | bias | activation, of the operator `where`
template <class Space, TensorLike X, TensorLike B>
auto activated(std::string_view where, X const& x, B const& b, Activation activation) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, where, "x");
  auto const offset = tensor_of<1, Space, ElementOf<B> const>(b, where, "bias");
  return load(in) | bias(offset) | ActivateChosen{activation};
}

template <class Space, TensorLike X, TensorLike B, TensorLike Y>
auto bias_activation_chain(X const& x, B const& b, Y const& y, Activation activation) {
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::bias_activation", "y");
  return activated<Space>("kfuse::bias_activation", x, b, activation) | store(out);
}
template <class Space, TensorLike X, TensorLike B, TensorLike M, TensorLike Y>
auto bias_activation_chain(X const& x, B const& b, M const& m, Y const& y, Activation activation, double value = 0) {
  auto const seen = tensor_of<2, Space, std::uint8_t const>(m, "kfuse::bias_activation", "mask");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::bias_activation", "y");
  return activated<Space>("kfuse::bias_activation", x, b, activation) | mask(seen, value) | store(out);
}

}  // namespace impl

// x, y: [rows, columns]; bias: [columns]. y may be x. Returns before the work is done.
template <class Space, TensorLike X, TensorLike B, TensorLike Y>
void bias_activation(Space const& space, X const& x, B const& bias, Y const& y, Activation activation) {
  fuse(space, "kfuse::bias_activation", impl::bias_activation_chain<Space>(x, bias, y, activation));
}
// mask: std::uint8_t, [rows, columns]. Where it is 0, y is `value` whatever x is.
template <class Space, TensorLike X, TensorLike B, TensorLike M, TensorLike Y>
void bias_activation(Space const& space, X const& x, B const& bias, M const& mask, Y const& y, Activation activation,
                     double value = 0) {
  fuse(space, "kfuse::bias_activation", impl::bias_activation_chain<Space>(x, bias, mask, y, activation, value));
}

// The same arguments as above.
template <class Space, TensorLike X, TensorLike B, TensorLike Y>
Traffic bias_activation_traffic(Space const&, X const& x, B const& bias, Y const& y, Activation activation) {
  return traffic(impl::bias_activation_chain<Space>(x, bias, y, activation));
}
template <class Space, TensorLike X, TensorLike B, TensorLike M, TensorLike Y>
Traffic bias_activation_traffic(Space const&, X const& x, B const& bias, M const& mask, Y const& y,
                                Activation activation, double value = 0) {
  return traffic(impl::bias_activation_chain<Space>(x, bias, mask, y, activation, value));
}

}  // namespace kfuse

#endif
