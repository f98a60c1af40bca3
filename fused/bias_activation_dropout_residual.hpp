// SPDX-License-Identifier: Apache-2.0
// Bias, activation, dropout and residual sum, which follow a product in training:
//   y(r, c) = residual(r, c) + dropout(activation(x(r, c) + bias(c)))
//
// The chain load | bias | activation | dropout | add | store, without dropout where none is asked for: its numbers take
// registers. With the default options it is residual + x + bias; with a dropout of 1, exactly the residual.
#ifndef KFUSE_FUSED_BIAS_ACTIVATION_DROPOUT_RESIDUAL_HPP
#define KFUSE_FUSED_BIAS_ACTIVATION_DROPOUT_RESIDUAL_HPP

#include <kfuse/fused/bias_activation.hpp>
#include <kfuse/fused/stage/dropout.hpp>

#include <type_traits>

namespace kfuse {

struct BiasActivationDropoutResidualOptions {
  Activation activation = Activation::none;
  double dropout = 0;        // the probability to drop a value of the activation
  RandomSource random = {};  // which are dropped: of a RandomState, or of a View of one when the kernel runs
};

namespace impl {

// Calls run(chain, whole): the chain has dropout if there is any, and the whole always.
template <class Space, class F, TensorLike X, TensorLike B, TensorLike R, TensorLike Y>
auto with_bias_activation_dropout_residual(F const& run, X const& x, B const& bias, R const& residual, Y const& y,
                                           BiasActivationDropoutResidualOptions const& options) {
  auto const added =
      tensor_of<2, Space, ElementOf<R> const>(residual, "kfuse::bias_activation_dropout_residual", "residual");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::bias_activation_dropout_residual", "y");
  auto const activation = activated<Space>("kfuse::bias_activation_dropout_residual", x, bias, options.activation);
  auto const with_dropout = activation | Dropout<>{options.dropout, options.random} | add(added) | store(out);
  if (options.dropout != 0) return run(with_dropout, with_dropout);
  return run(activation | add(added) | store(out), with_dropout);
}

}  // namespace impl

// x, residual, y: [rows, columns]; bias: [columns]. y may be x or residual. Returns before the work is done.
template <class Space, TensorLike X, TensorLike B, TensorLike R, TensorLike Y>
void bias_activation_dropout_residual(Space const& space, X const& x, B const& bias, R const& residual, Y const& y,
                                      BiasActivationDropoutResidualOptions const& options = {}) {
  auto const run = [&](auto const& chain, auto const& whole) {
    auto const name = "kfuse::bias_activation_dropout_residual";
    if constexpr (!std::is_same_v<decltype(chain), decltype(whole)>)
      impl::Fusion(space, name, whole);  // a state that is not drawn from must be one that could be
    fuse(space, name, chain);
  };
  impl::with_bias_activation_dropout_residual<Space>(run, x, bias, residual, y, options);
}

template <class Space, TensorLike X, TensorLike B, TensorLike R, TensorLike Y>
Traffic bias_activation_dropout_residual_traffic(Space const&, X const& x, B const& bias, R const& residual, Y const& y,
                                                 BiasActivationDropoutResidualOptions const& options = {}) {
  auto const run = [](auto const& chain, auto const&) { return traffic(chain); };
  return impl::with_bias_activation_dropout_residual<Space>(run, x, bias, residual, y, options);
}

}  // namespace kfuse

#endif
