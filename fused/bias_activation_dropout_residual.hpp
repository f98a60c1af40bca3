// SPDX-License-Identifier: Apache-2.0
// Bias, activation, dropout and residual sum, which follow a product in training:
//   y(r, c) = residual(r, c) + dropout(activation(x(r, c) + bias(c)))
//
// The chain load | bias | activation | dropout | add | store. With the default options it is residual + x + bias; with
// a dropout of 1, exactly the residual.
#ifndef KFUSE_FUSED_BIAS_ACTIVATION_DROPOUT_RESIDUAL_HPP
#define KFUSE_FUSED_BIAS_ACTIVATION_DROPOUT_RESIDUAL_HPP

#include <kfuse/fused/bias_activation.hpp>
#include <kfuse/fused/stage/dropout.hpp>

namespace kfuse {

struct BiasActivationDropoutResidualOptions {
  Activation activation = Activation::none;
  double dropout = 0;        // the probability to drop a value of the activation
  RandomSource random = {};  // which are dropped: of a RandomState, or of a View of one when the kernel runs
};

namespace impl {

// Calls run(chain), of which dropout is a part if there is any.
template <class Space, class F, TensorLike X, TensorLike B, TensorLike R, TensorLike Y>
auto with_bias_activation_dropout_residual(F const& run, X const& x, B const& bias, R const& residual, Y const& y,
                                           BiasActivationDropoutResidualOptions const& options) {
  auto const added =
      tensor_of<2, Space, ElementOf<R> const>(residual, "kfuse::bias_activation_dropout_residual: residual");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::bias_activation_dropout_residual: y");
  auto const activation = activated<Space>("kfuse::bias_activation_dropout_residual", x, bias, options.activation);
  if (options.dropout == 0) return run(activation | add(added) | store(out));
  return run(activation | Dropout<>{options.dropout, options.random} | add(added) | store(out));
}

}  // namespace impl

// x, residual, y: [rows, columns]; bias: [columns]. y may be x or residual. Returns before the work is done.
template <class Space, TensorLike X, TensorLike B, TensorLike R, TensorLike Y>
void bias_activation_dropout_residual(Space const& space, X const& x, B const& bias, R const& residual, Y const& y,
                                      BiasActivationDropoutResidualOptions const& options = {}) {
  auto const run = [&](auto const& chain) { fuse(space, "kfuse::bias_activation_dropout_residual", chain); };
  impl::with_bias_activation_dropout_residual<Space>(run, x, bias, residual, y, options);
}

template <class Space, TensorLike X, TensorLike B, TensorLike R, TensorLike Y>
Traffic bias_activation_dropout_residual_traffic(Space const&, X const& x, B const& bias, R const& residual, Y const& y,
                                                 BiasActivationDropoutResidualOptions const& options = {}) {
  auto const run = [](auto const& chain) { return traffic(chain); };
  return impl::with_bias_activation_dropout_residual<Space>(run, x, bias, residual, y, options);
}

}  // namespace kfuse

#endif
