// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/log_softmax.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments, [](auto const& a) { kfuse::log_softmax(a.space, a.matrix, a.matrix, a.workspace); });
}
