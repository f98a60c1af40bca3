// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/softmax.hpp>

#include "arguments.hpp"

// Each also with a causal mask and sinks: what options hold is known at run time alone.
void device_code(AllArguments const& arguments) {
  for_each_element_and_double(arguments, [](auto const& a) {
    kfuse::softmax(a.space, a.matrix, a.matrix, {}, a.workspace);
    kfuse::softmax(a.space, a.matrix, a.visible, a.matrix, {}, a.workspace);
  });
}
