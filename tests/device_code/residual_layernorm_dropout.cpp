// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/residual_layernorm_dropout.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element_and_double(arguments, [](auto const& a) {
    kfuse::residual_layernorm_dropout(a.space, a.matrix, a.matrix, a.vector, a.vector, a.matrix, {}, a.workspace);
  });
}
