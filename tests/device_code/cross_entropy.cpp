// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/cross_entropy.hpp>

#include "arguments.hpp"

// With and without smoothing or a cap, and reduced or not: what options hold is known at run time alone.
void device_code(AllArguments const& arguments) {
  auto const call = [&](auto const& a, auto const& loss) {
    kfuse::cross_entropy(a.space, a.matrix, a.indices, loss, {}, a.workspace);
    kfuse::cross_entropy(a.space, a.matrix, a.indices, loss, a.matrix, {}, a.workspace);
  };
  for_each_element(arguments, [&](auto const& a) { call(a, arguments.fp32.vector); });
  call(arguments.fp64, arguments.fp64.vector);
}
