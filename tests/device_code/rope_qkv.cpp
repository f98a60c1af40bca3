// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/rope_qkv.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments, [](auto const& a) {
    kfuse::rope_qkv(a.space, a.matrix, a.matrix, a.indices, a.matrix, a.heads, a.heads);
  });
}
