// SPDX-License-Identifier: Apache-2.0
// Residual sum and layer normalisation:
//   sum = x + residual
//   y(r, c) = (sum(r, c) - mean) / sqrt(mean over c of (sum(r, c) - mean)^2 + epsilon) * weight(c) + bias(c)
//
// Two forms: one stores y alone, as a layer that normalises after the sum needs (BERT); the other stores the sum too,
// for the next residual of a layer that normalises before (GPT-2). The norm takes the sum before it is rounded to its
// element type, in both forms and on every path.
#ifndef KFUSE_FUSED_ADD_LAYERNORM_HPP
#define KFUSE_FUSED_ADD_LAYERNORM_HPP

#include <kfuse/fused/layernorm.hpp>

namespace kfuse {

namespace impl {

template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike B, TensorLike Y>
auto add_layernorm_chain(X const& x, R const& residual, W const& weight, B const& bias, Y const& y,
                         LayerNormOptions const& options) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::add_layernorm", "x");
  auto const added = tensor_of<2, Space, ElementOf<R> const>(residual, "kfuse::add_layernorm", "residual");
  auto const scale = tensor_of<1, Space, ElementOf<W> const>(weight, "kfuse::add_layernorm", "weight");
  auto const offset = tensor_of<1, Space, ElementOf<B> const>(bias, "kfuse::add_layernorm", "bias");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::add_layernorm", "y");
  constexpr auto summation = summation_of<ElementOf<Y>>;
  return load(in) | add(added) | layernorm<summation>(scale, offset, options) | store(out);
}

template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike B, TensorLike S, TensorLike Y>
auto add_layernorm_chain(X const& x, R const& residual, W const& weight, B const& bias, S const& sum, Y const& y,
                         LayerNormOptions const& options) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::add_layernorm", "x");
  auto const added = tensor_of<2, Space, ElementOf<R> const>(residual, "kfuse::add_layernorm", "residual");
  auto const scale = tensor_of<1, Space, ElementOf<W> const>(weight, "kfuse::add_layernorm", "weight");
  auto const offset = tensor_of<1, Space, ElementOf<B> const>(bias, "kfuse::add_layernorm", "bias");
  auto const total = tensor_of<2, Space, ElementOf<S>>(sum, "kfuse::add_layernorm", "sum");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::add_layernorm", "y");
  constexpr auto summation = summation_of<ElementOf<Y>>;
  return load(in) | add(added) | store(total) | layernorm<summation>(scale, offset, options) | store(out);
}

}  // namespace impl

// x, residual, y: [rows, columns]; weight, bias: [columns]. y may be x or residual.
template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike B, TensorLike Y>
void add_layernorm(Space const& space, X const& x, R const& residual, W const& weight, B const& bias, Y const& y,
                   LayerNormOptions const& options = {}) {
  fuse(space, "kfuse::add_layernorm", impl::add_layernorm_chain<Space>(x, residual, weight, bias, y, options));
}
// The same bits, and rows that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike B, TensorLike Y>
void add_layernorm(Space const& space, X const& x, R const& residual, W const& weight, B const& bias, Y const& y,
                   LayerNormOptions const& options, Workspace<Space>& workspace) {
  fuse(space, "kfuse::add_layernorm", impl::add_layernorm_chain<Space>(x, residual, weight, bias, y, options),
       workspace);
}

// sum: [rows, columns], too. sum and y may each be x or residual, but not the same one.
template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike B, TensorLike S, TensorLike Y>
void add_layernorm(Space const& space, X const& x, R const& residual, W const& weight, B const& bias, S const& sum,
                   Y const& y, LayerNormOptions const& options = {}) {
  fuse(space, "kfuse::add_layernorm", impl::add_layernorm_chain<Space>(x, residual, weight, bias, sum, y, options));
}
// The same bits, and rows that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike B, TensorLike S, TensorLike Y>
void add_layernorm(Space const& space, X const& x, R const& residual, W const& weight, B const& bias, S const& sum,
                   Y const& y, LayerNormOptions const& options, Workspace<Space>& workspace) {
  fuse(space, "kfuse::add_layernorm", impl::add_layernorm_chain<Space>(x, residual, weight, bias, sum, y, options),
       workspace);
}

template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike B, TensorLike Y>
Traffic add_layernorm_traffic(Space const&, X const& x, R const& residual, W const& weight, B const& bias, Y const& y,
                              LayerNormOptions const& options = {}) {
  return traffic(impl::add_layernorm_chain<Space>(x, residual, weight, bias, y, options));
}
template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike B, TensorLike S, TensorLike Y>
Traffic add_layernorm_traffic(Space const&, X const& x, R const& residual, W const& weight, B const& bias, S const& sum,
                              Y const& y, LayerNormOptions const& options = {}) {
  return traffic(impl::add_layernorm_chain<Space>(x, residual, weight, bias, sum, y, options));
}

}  // namespace kfuse

#endif
