// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/add_multiply_relu.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments,
                   [](auto const& a) { kfuse::add_multiply_relu(a.space, a.matrix, a.matrix, a.matrix, a.matrix); });
}
