// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/embedding.hpp>

#include <cstdint>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  for_each_element(arguments, [](auto const& a) {
    auto const &table = a.matrix, &y = a.matrix;
    auto const& rows = a.indices;
    kfuse::Tensor<std::int64_t, 1> const long_rows{reinterpret_cast<std::int64_t*>(rows.data), {rows.extent(0)}, {1}};
    kfuse::embedding(a.space, table, rows, y);
    kfuse::embedding(a.space, table, long_rows, y);
    kfuse::embedding(a.space, table, rows, table, rows, y);
    kfuse::embedding(a.space, table, rows, table, rows, table, rows, y);
  });
}
