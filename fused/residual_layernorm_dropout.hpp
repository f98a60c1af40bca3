// SPDX-License-Identifier: Apache-2.0
// Residual sum, layer normalisation, and dropout of what is normalised:
//   sum = x + x_bias + residual
//   y = dropout((sum - mean(sum)) / sqrt(variance(sum) + epsilon) * weight + bias)
//
// Dropout comes last, as after the sum of BERT's embeddings. It is not what the sublayers of a transformer that
// normalises after the sum do in training (Vaswani et al. 2017, section 5.4; BERT), which drop before they add:
// layernorm(residual + dropout(x + bias)), one launch of load | bias | dropout | add | layernorm | store.
//
// The chain load | bias | add | store | layernorm | dropout | store. Whether there is a bias of x, and whether the sum
// is stored, too, is known at run time: one set of kernels for all four. The norm takes the sum before it is rounded to
// its element type. Which values are dropped depends on seed, offset, row and column alone (stage/dropout.hpp).
#ifndef KFUSE_FUSED_RESIDUAL_LAYERNORM_DROPOUT_HPP
#define KFUSE_FUSED_RESIDUAL_LAYERNORM_DROPOUT_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/dropout.hpp>
#include <kfuse/fused/stage/if_given.hpp>
#include <kfuse/fused/stage/norm.hpp>

namespace kfuse {

template <class Element>
struct ResidualLayerNormDropoutOptions {
  double epsilon = 1e-5;
  NormWeight weight = NormWeight::as_given;
  Tensor<Element const, 1> x_bias{};  // [columns]; without memory: none
  Tensor<Element, 2> sum{};           // [rows, columns]; without memory: not stored; may be x or residual
  double dropout = 0;                 // the probability to drop a value
  RandomSource random = {};           // which are dropped: of a RandomState, or of a View of one when the kernel runs
};

namespace impl {

template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike B, TensorLike Y>
auto residual_layernorm_dropout_chain(X const& x, R const& residual, W const& weight, B const& bias_of_norm, Y const& y,
                                      ResidualLayerNormDropoutOptions<ElementOf<X>> const& options) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::residual_layernorm_dropout", "x");
  auto const added = tensor_of<2, Space, ElementOf<R> const>(residual, "kfuse::residual_layernorm_dropout", "residual");
  auto const scale = tensor_of<1, Space, ElementOf<W> const>(weight, "kfuse::residual_layernorm_dropout", "weight");
  auto const offset =
      tensor_of<1, Space, ElementOf<B> const>(bias_of_norm, "kfuse::residual_layernorm_dropout", "bias");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::residual_layernorm_dropout", "y");
  auto const x_bias = tensor<1>(options.x_bias, "kfuse::residual_layernorm_dropout", "x_bias");
  auto const sum = tensor<2>(options.sum, "kfuse::residual_layernorm_dropout", "sum");
  constexpr auto summation = summation_of<ElementOf<Y>>;
  return load(in) | IfGiven<decltype(bias(x_bias))>{bias(x_bias), x_bias.data != nullptr} | add(added) |
         IfGiven<decltype(store(sum))>{store(sum), sum.data != nullptr} |
         layernorm<summation>(scale, offset, {.epsilon = options.epsilon, .weight = options.weight}) |
         Dropout<>{options.dropout, options.random} | store(out);
}

}  // namespace impl

// x, residual, y: [rows, columns]; weight, bias: [columns]. y and the sum may each be x or residual, but not the same
// one. Returns before the work is done.
template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike B, TensorLike Y>
void residual_layernorm_dropout(Space const& space, X const& x, R const& residual, W const& weight, B const& bias,
                                Y const& y, ResidualLayerNormDropoutOptions<impl::ElementOf<X>> const& options = {}) {
  fuse(space, "kfuse::residual_layernorm_dropout",
       impl::residual_layernorm_dropout_chain<Space>(x, residual, weight, bias, y, options));
}
// The same bits, and rows that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike B, TensorLike Y>
void residual_layernorm_dropout(Space const& space, X const& x, R const& residual, W const& weight, B const& bias,
                                Y const& y, ResidualLayerNormDropoutOptions<impl::ElementOf<X>> const& options,
                                Workspace<Space>& workspace) {
  fuse(space, "kfuse::residual_layernorm_dropout",
       impl::residual_layernorm_dropout_chain<Space>(x, residual, weight, bias, y, options), workspace);
}

template <class Space, TensorLike X, TensorLike R, TensorLike W, TensorLike B, TensorLike Y>
Traffic residual_layernorm_dropout_traffic(Space const&, X const& x, R const& residual, W const& weight, B const& bias,
                                           Y const& y,
                                           ResidualLayerNormDropoutOptions<impl::ElementOf<X>> const& options = {}) {
  return traffic(impl::residual_layernorm_dropout_chain<Space>(x, residual, weight, bias, y, options));
}

}  // namespace kfuse

#endif
