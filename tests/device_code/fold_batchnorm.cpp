// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/fold_batchnorm.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  auto const& parameters = arguments.fp32.vector;
  for_each_element(arguments, [&](auto const& a) {
    kfuse::fold_batchnorm(a.space, a.matrix, a.vector, parameters, parameters, parameters, parameters, a.matrix,
                          a.vector);
  });
}
