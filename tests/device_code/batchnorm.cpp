// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/batchnorm.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  // Parameters in float, as models that run in 16 bits keep them.
  auto const& parameters = arguments.fp32.vector;
  for_each_element(arguments, [&](auto const& a) {
    kfuse::batchnorm(a.space, a.matrix, parameters, parameters, parameters, parameters, a.matrix);
    kfuse::batchnorm(a.space, a.batch, parameters, parameters, parameters, parameters, a.batch);
  });
}
