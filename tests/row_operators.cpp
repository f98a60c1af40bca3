// SPDX-License-Identifier: Apache-2.0
// The kernels of rows in bf16.
#include "row_operator_list.hpp"

namespace kfuse::test {

template std::vector<RowOperator<AllBf16>> row_operators<AllBf16>();

}  // namespace kfuse::test
