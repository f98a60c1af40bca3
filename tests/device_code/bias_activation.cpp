// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/bias_activation.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element_and_double(arguments, [](auto const& a) {
    kfuse::bias_activation(a.space, a.matrix, a.vector, a.matrix, kfuse::Activation::gelu);
    kfuse::bias_activation(a.space, a.matrix, a.vector, a.visible, a.matrix, kfuse::Activation::gelu);
  });
}
