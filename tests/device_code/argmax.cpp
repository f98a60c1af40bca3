// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/argmax.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments, [](auto const& a) {
    kfuse::argmax(a.space, a.matrix, a.indices, a.workspace);
    kfuse::argmax(a.space, a.matrix, a.vector, a.indices, a.workspace);
  });
}
