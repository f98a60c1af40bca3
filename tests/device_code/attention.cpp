// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/attention.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(
      arguments, [](auto const& a) { kfuse::attention(a.space, a.heads, a.heads, a.heads, a.heads, {}, a.workspace); });
}
