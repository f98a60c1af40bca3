// SPDX-License-Identifier: Apache-2.0
// The kernels of rows in bf16 with all else in float.
#include "row_operator_list.hpp"

namespace kfuse::test {

template std::vector<RowOperator<Bf16ToFloat>> row_operators<Bf16ToFloat>();

}  // namespace kfuse::test
