// SPDX-License-Identifier: Apache-2.0
// Softmax of each row:
//   y(r, c) = exp(scale x(r, c)) / sum over c of exp(scale x(r, c)), over the columns that are visible
//
// The chain load | mask | softmax | store. What is not visible gets zero, and so does a row in which nothing is, or
// which is -infinity throughout. A NaN or a +infinity makes its row NaN.
#ifndef KFUSE_FUSED_SOFTMAX_HPP
#define KFUSE_FUSED_SOFTMAX_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/mask.hpp>
#include <kfuse/fused/stage/softmax.hpp>

#include <cstdint>

namespace kfuse {

namespace impl {

template <class Space, TensorLike X, TensorLike Y>
auto softmax_chain(X const& x, Y const& y, SoftmaxOptions const& options) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::softmax: x");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::softmax: y");
  return load(in) | softmax(options) | store(out);
}

template <class Space, TensorLike X, TensorLike M, TensorLike Y>
auto softmax_chain(X const& x, M const& visible, Y const& y, SoftmaxOptions const& options) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::softmax: x");
  auto const seen = tensor_of<2, Space, std::uint8_t const>(visible, "kfuse::softmax: visible");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::softmax: y");
  // Scaled first: hidden values stay -infinity whatever the scale.
  return load(in) | scale(options.scale) | mask(seen) | softmax() | store(out);
}

}  // namespace impl

// x, y: [rows, columns]. y may be x. Returns before the work is done.
template <class Space, TensorLike X, TensorLike Y>
void softmax(Space const& space, X const& x, Y const& y, SoftmaxOptions const& options = {}) {
  fuse(space, "kfuse::softmax", impl::softmax_chain<Space>(x, y, options));
}
// The same bits, and rows that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike Y>
void softmax(Space const& space, X const& x, Y const& y, SoftmaxOptions const& options, Workspace<Space>& workspace) {
  fuse(space, "kfuse::softmax", impl::softmax_chain<Space>(x, y, options), workspace);
}

// visible: std::uint8_t, [rows, columns]; a value counts where it is not 0.
template <class Space, TensorLike X, TensorLike M, TensorLike Y>
void softmax(Space const& space, X const& x, M const& visible, Y const& y, SoftmaxOptions const& options = {}) {
  fuse(space, "kfuse::softmax", impl::softmax_chain<Space>(x, visible, y, options));
}
// The same bits, and rows that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike M, TensorLike Y>
void softmax(Space const& space, X const& x, M const& visible, Y const& y, SoftmaxOptions const& options,
             Workspace<Space>& workspace) {
  fuse(space, "kfuse::softmax", impl::softmax_chain<Space>(x, visible, y, options), workspace);
}

template <class Space, TensorLike X, TensorLike Y>
Traffic softmax_traffic(Space const&, X const& x, Y const& y, SoftmaxOptions const& options = {}) {
  return traffic(impl::softmax_chain<Space>(x, y, options));
}
template <class Space, TensorLike X, TensorLike M, TensorLike Y>
Traffic softmax_traffic(Space const&, X const& x, M const& visible, Y const& y, SoftmaxOptions const& options = {}) {
  return traffic(impl::softmax_chain<Space>(x, visible, y, options));
}

}  // namespace kfuse

#endif
