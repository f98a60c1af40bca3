// SPDX-License-Identifier: Apache-2.0
// Residual sum and root-mean-square normalisation:
//   sum = x + residual,  y(r, c) = sum(r, c) / sqrt(mean over c of sum(r, c)^2 + epsilon) * weight(c)
//
// The chain load | add | store | rmsnorm | store. The norm takes the sum before it is rounded to its element type, on
// every path.
#ifndef KFUSE_FUSED_ADD_RMSNORM_HPP
#define KFUSE_FUSED_ADD_RMSNORM_HPP

#include <kfuse/fused/rmsnorm.hpp>

namespace kfuse {

namespace impl {

template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike S, TensorLike Y>
auto add_rmsnorm_chain(X const& x, R const& residual, W const& weight, S const& sum, Y const& y,
                       RmsNormOptions const& options) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::add_rmsnorm", "x");
  auto const added = tensor_of<2, Space, ElementOf<R> const>(residual, "kfuse::add_rmsnorm", "residual");
  auto const scale = tensor_of<1, Space, ElementOf<W> const>(weight, "kfuse::add_rmsnorm", "weight");
  auto const total = tensor_of<2, Space, ElementOf<S>>(sum, "kfuse::add_rmsnorm", "sum");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::add_rmsnorm", "y");
  constexpr auto summation = summation_of<ElementOf<Y>>;
  return load(in) | add(added) | store(total) | rmsnorm<ElementOf<X>, summation>(scale, options) | store(out);
}

}  // namespace impl

// x, residual, sum, y: [rows, columns]; weight: [columns]. sum and y may each be x or residual, but not the same one.
template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike S, TensorLike Y>
void add_rmsnorm(Space const& space, X const& x, R const& residual, W const& weight, S const& sum, Y const& y,
                 RmsNormOptions const& options = {}) {
  fuse(space, "kfuse::add_rmsnorm", impl::add_rmsnorm_chain<Space>(x, residual, weight, sum, y, options));
}
// The same bits, and rows that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike S, TensorLike Y>
void add_rmsnorm(Space const& space, X const& x, R const& residual, W const& weight, S const& sum, Y const& y,
                 RmsNormOptions const& options, Workspace<Space>& workspace) {
  fuse(space, "kfuse::add_rmsnorm", impl::add_rmsnorm_chain<Space>(x, residual, weight, sum, y, options), workspace);
}

template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike S, TensorLike Y>
Traffic add_rmsnorm_traffic(Space const&, X const& x, R const& residual, W const& weight, S const& sum, Y const& y,
                            RmsNormOptions const& options = {}) {
  return traffic(impl::add_rmsnorm_chain<Space>(x, residual, weight, sum, y, options));
}

}  // namespace kfuse

#endif
