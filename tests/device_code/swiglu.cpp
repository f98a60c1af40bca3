// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/swiglu.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments, [](auto const& a) {
    for (auto const layout : {kfuse::GateLayout::halves, kfuse::GateLayout::interleaved})
      kfuse::swiglu(a.space, a.matrix, a.matrix, {.layout = layout});
  });
}
