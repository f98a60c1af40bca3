// SPDX-License-Identifier: Apache-2.0
// Sum, product and ReLU, value by value:
//   y(r, c) = max((x(r, c) + addend(r, c)) * factor(r, c), 0)
//
// The chain load | add | multiply | relu | store. NaN stays NaN.
#ifndef KFUSE_FUSED_ADD_MULTIPLY_RELU_HPP
#define KFUSE_FUSED_ADD_MULTIPLY_RELU_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/activation.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>

namespace kfuse {

namespace impl {

template <class Space, TensorLike X, TensorLike A, TensorLike F, TensorLike Y>
auto add_multiply_relu_chain(X const& x, A const& addend, F const& factor, Y const& y) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::add_multiply_relu", "x");
  auto const added = tensor_of<2, Space, ElementOf<A> const>(addend, "kfuse::add_multiply_relu", "addend");
  auto const multiplied = tensor_of<2, Space, ElementOf<F> const>(factor, "kfuse::add_multiply_relu", "factor");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::add_multiply_relu", "y");
  return load(in) | add(added) | multiply(multiplied) | relu() | store(out);
}

}  // namespace impl

// x, addend, factor, y: [rows, columns]. y may be any of the others. Returns before the work is done.
template <class Space, TensorLike X, TensorLike A, TensorLike F, TensorLike Y>
void add_multiply_relu(Space const& space, X const& x, A const& addend, F const& factor, Y const& y) {
  fuse(space, "kfuse::add_multiply_relu", impl::add_multiply_relu_chain<Space>(x, addend, factor, y));
}

template <class Space, TensorLike X, TensorLike A, TensorLike F, TensorLike Y>
Traffic add_multiply_relu_traffic(Space const&, X const& x, A const& addend, F const& factor, Y const& y) {
  return traffic(impl::add_multiply_relu_chain<Space>(x, addend, factor, y));
}

}  // namespace kfuse

#endif
