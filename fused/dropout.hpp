// SPDX-License-Identifier: Apache-2.0
// Dropout (Srivastava et al. 2014), scaled while training as PyTorch's is:
//   y(r, c) = 0 with probability p, else x(r, c) / (1 - p)
//
// The chain load | dropout | store. No mask is kept: what is dropped follows from p, seed, offset, row and column
// alone, whatever the layout, so the backward pass calls the same with the gradient for x. p = 0, for evaluation,
// copies x; p = 1 leaves exact zeros whatever was there. A call that shall draw new numbers is given the next offset,
// in memory if it is replayed.
#ifndef KFUSE_FUSED_DROPOUT_HPP
#define KFUSE_FUSED_DROPOUT_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/dropout.hpp>
#include <kfuse/fused/stage/load_store.hpp>

namespace kfuse {

struct DropoutOptions {
  double p = 0.5;            // the probability to drop a value
  RandomSource random = {};  // which are dropped: of a RandomState, or of a View of one when the kernel runs
};

namespace impl {

template <class Space, TensorLike X, TensorLike Y>
auto dropout_chain(X const& x, Y const& y, DropoutOptions const& options) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::dropout", "x");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::dropout", "y");
  return load(in) | Dropout<>{options.p, options.random} | store(out);
}

}  // namespace impl

// x, y: [rows, columns]. y may be x. Returns before the work is done.
template <class Space, TensorLike X, TensorLike Y>
void dropout(Space const& space, X const& x, Y const& y, DropoutOptions const& options = {}) {
  fuse(space, "kfuse::dropout", impl::dropout_chain<Space>(x, y, options));
}

template <class Space, TensorLike X, TensorLike Y>
Traffic dropout_traffic(Space const&, X const& x, Y const& y, DropoutOptions const& options = {}) {
  return traffic(impl::dropout_chain<Space>(x, y, options));
}

}  // namespace kfuse

#endif
