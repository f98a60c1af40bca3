// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/bias_activation_dropout_residual.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments, [](auto const& a) {
    kfuse::bias_activation_dropout_residual(a.space, a.matrix, a.vector, a.matrix, a.matrix,
                                            {.activation = kfuse::Activation::gelu, .dropout = 0.1, .random = {7, 0}});
  });
}
