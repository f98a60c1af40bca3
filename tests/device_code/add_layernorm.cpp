// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/add_layernorm.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments, [](auto const& a) {
    kfuse::add_layernorm(a.space, a.matrix, a.matrix, a.vector, a.vector, a.matrix, {}, a.workspace);
    kfuse::add_layernorm(a.space, a.matrix, a.matrix, a.vector, a.vector, a.matrix, a.matrix, {}, a.workspace);
  });
}
