// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/rmsnorm.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments,
                   [](auto const& a) { kfuse::rmsnorm(a.space, a.matrix, a.vector, a.matrix, {}, a.workspace); });
}
