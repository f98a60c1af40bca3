// SPDX-License-Identifier: Apache-2.0
// Layer normalisation of each row (Ba, Kiros, Hinton 2016):
//   y(r, c) = (x(r, c) - mean) / sqrt(mean over c of (x(r, c) - mean)^2 + epsilon) * weight(c) + bias(c)
//
// The chain load | layernorm | store. A constant row gives exactly the bias. x, weight, bias and y may have different
// element types.
//
// Sums of a few neighbours and squares are float (of doubles, double), and rows are not scaled to fit: where eight
// neighbours exceed the largest float in sum, as with values from 2^125 (4.2e37) on, the row may be NaN; where the
// squares of what is left of the mean do, as with differences from 2^64 (1.8e19) on, the row is the bias.
#ifndef KFUSE_FUSED_LAYERNORM_HPP
#define KFUSE_FUSED_LAYERNORM_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/norm.hpp>

namespace kfuse {

namespace impl {

template <class Space, TensorLike X, TensorLike W, TensorLike B, TensorLike Y>
auto layernorm_chain(X const& x, W const& weight, B const& bias, Y const& y, LayerNormOptions const& options) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::layernorm", "x");
  auto const scale = tensor_of<1, Space, ElementOf<W> const>(weight, "kfuse::layernorm", "weight");
  auto const offset = tensor_of<1, Space, ElementOf<B> const>(bias, "kfuse::layernorm", "bias");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::layernorm", "y");
  return load(in) | layernorm<summation_of<ElementOf<Y>>>(scale, offset, options) | store(out);
}

}  // namespace impl

// x, y: [rows, columns]; weight, bias: [columns]. y may be x. Returns before the work is done.
template <class Space, TensorLike X, TensorLike W, TensorLike B, TensorLike Y>
void layernorm(Space const& space, X const& x, W const& weight, B const& bias, Y const& y,
               LayerNormOptions const& options = {}) {
  fuse(space, "kfuse::layernorm", impl::layernorm_chain<Space>(x, weight, bias, y, options));
}
// The same bits, and rows that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike W, TensorLike B, TensorLike Y>
void layernorm(Space const& space, X const& x, W const& weight, B const& bias, Y const& y,
               LayerNormOptions const& options, Workspace<Space>& workspace) {
  fuse(space, "kfuse::layernorm", impl::layernorm_chain<Space>(x, weight, bias, y, options), workspace);
}

template <class Space, TensorLike X, TensorLike W, TensorLike B, TensorLike Y>
Traffic layernorm_traffic(Space const&, X const& x, W const& weight, B const& bias, Y const& y,
                          LayerNormOptions const& options = {}) {
  return traffic(impl::layernorm_chain<Space>(x, weight, bias, y, options));
}

}  // namespace kfuse

#endif
