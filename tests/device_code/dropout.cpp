// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/dropout.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments, [](auto const& a) {
    kfuse::dropout(a.space, a.matrix, a.matrix, {.p = 0.1, .random = {7, 0}});
  });
}
