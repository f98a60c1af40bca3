// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/qk_rmsnorm.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments, [](auto const& a) {
    kfuse::qk_rmsnorm(a.space, a.batch, 1, a.vector, a.vector, a.batch, {}, a.workspace);
  });
}
