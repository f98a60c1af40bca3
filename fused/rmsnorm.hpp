// SPDX-License-Identifier: Apache-2.0
// Root-mean-square normalisation of each row (Zhang, Sennrich 2019):
//   y(r, c) = x(r, c) / sqrt(mean over c of x(r, c)^2 + epsilon) * weight(c)
//
// The chain load | rmsnorm | store. A row of zeros gives zeros. x, weight and y may have different element types. The
// options say whether the weight is stored as given or as what it exceeds one by, and whether values are rounded before
// the weight, too (stage/norm.hpp).
//
// Squares are float (of doubles, double), and rows are not scaled to fit: where the sum of their squares exceeds the
// largest float, as with any value from 2^64 (1.8e19) on, finite values give zeros. Squares below the smallest normal
// float, of values under 2^-63 (1.1e-19), lose their digits; where they vanish and epsilon is 0, they give zeros.
#ifndef KFUSE_FUSED_RMSNORM_HPP
#define KFUSE_FUSED_RMSNORM_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/norm.hpp>

namespace kfuse {

namespace impl {

template <class Space, TensorLike X, TensorLike W, TensorLike Y>
auto rmsnorm_chain(X const& x, W const& weight, Y const& y, RmsNormOptions const& options) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::rmsnorm", "x");
  auto const scale = tensor_of<1, Space, ElementOf<W> const>(weight, "kfuse::rmsnorm", "weight");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::rmsnorm", "y");
  return load(in) | rmsnorm<ElementOf<X>, summation_of<ElementOf<Y>>>(scale, options) | store(out);
}

}  // namespace impl

// x, y: [rows, columns]; weight: [columns]. y may be x. Returns before the work is done.
template <class Space, TensorLike X, TensorLike W, TensorLike Y>
void rmsnorm(Space const& space, X const& x, W const& weight, Y const& y, RmsNormOptions const& options = {}) {
  fuse(space, "kfuse::rmsnorm", impl::rmsnorm_chain<Space>(x, weight, y, options));
}
// The same bits, and rows that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike W, TensorLike Y>
void rmsnorm(Space const& space, X const& x, W const& weight, Y const& y, RmsNormOptions const& options,
             Workspace<Space>& workspace) {
  fuse(space, "kfuse::rmsnorm", impl::rmsnorm_chain<Space>(x, weight, y, options), workspace);
}

template <class Space, TensorLike X, TensorLike W, TensorLike Y>
Traffic rmsnorm_traffic(Space const&, X const& x, W const& weight, Y const& y, RmsNormOptions const& options = {}) {
  return traffic(impl::rmsnorm_chain<Space>(x, weight, y, options));
}

}  // namespace kfuse

#endif
