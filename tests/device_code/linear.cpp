// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/linear.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments, [](auto const& a) { kfuse::linear(a.space, a.blas, a.matrix, a.matrix, a.matrix); });
}
