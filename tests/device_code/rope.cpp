// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/rope.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments,
                   [&](auto const& a) { kfuse::rope(a.space, a.batch, a.batch, arguments.fp32.matrix, a.indices); });
}
