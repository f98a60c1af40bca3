// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/matmul.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments, [](auto const& a) { kfuse::matmul(a.space, a.blas, a.batch, a.batch, a.batch); });
}
