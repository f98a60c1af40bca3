// SPDX-License-Identifier: Apache-2.0
// The logarithm of the softmax of each row:
//   y(r, c) = x(r, c) - max over c of x(r, c) - log(sum over c of exp(x(r, c) - max over c of x(r, c)))
//
// The chain load | log_softmax | store, with one reduction. A row of -infinity alone stays as it is: the logarithms of
// softmax's zeros. A NaN or a +infinity makes its row NaN.
#ifndef KFUSE_FUSED_LOG_SOFTMAX_HPP
#define KFUSE_FUSED_LOG_SOFTMAX_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/load_store.hpp>
#include <kfuse/fused/stage/log_sum_exp.hpp>

namespace kfuse {

namespace impl {

template <class Space, TensorLike X, TensorLike Y>
auto log_softmax_chain(X const& x, Y const& y) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::log_softmax", "x");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::log_softmax", "y");
  return load(in) | kfuse::log_softmax() | store(out);
}

}  // namespace impl

// x, y: [rows, columns], of any element types. y may be x. Returns before the work is done.
template <class Space, TensorLike X, TensorLike Y>
void log_softmax(Space const& space, X const& x, Y const& y) {
  fuse(space, "kfuse::log_softmax", impl::log_softmax_chain<Space>(x, y));
}
// The same bits, and rows that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike Y>
void log_softmax(Space const& space, X const& x, Y const& y, Workspace<Space>& workspace) {
  fuse(space, "kfuse::log_softmax", impl::log_softmax_chain<Space>(x, y), workspace);
}

template <class Space, TensorLike X, TensorLike Y>
Traffic log_softmax_traffic(Space const&, X const& x, Y const& y) {
  return traffic(impl::log_softmax_chain<Space>(x, y));
}

}  // namespace kfuse

#endif
