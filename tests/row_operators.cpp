// SPDX-License-Identifier: Apache-2.0
// The kernels of 16-bit rows.
#include "row_operator_list.hpp"

namespace kfuse::test {

template std::vector<RowOperator<AllBf16>> row_operators<AllBf16>();
template std::vector<RowOperator<Bf16ToFloat>> row_operators<Bf16ToFloat>();

}  // namespace kfuse::test
