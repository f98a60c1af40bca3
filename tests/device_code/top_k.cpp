// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/top_k.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments, [](auto const& a) {
    kfuse::Tensor<int, 2> const indices{
        a.indices.data, {a.matrix.extent(0), a.matrix.extent(1)}, {a.indices.extent(0), 1}};
    kfuse::top_k(a.space, a.matrix, a.matrix, indices);
  });
}
