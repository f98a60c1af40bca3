// SPDX-License-Identifier: Apache-2.0
// The kernels of rows in double that become bf16.
#include "row_operator_list.hpp"

namespace kfuse::test {

template std::vector<RowOperator<DoubleToBf16>> row_operators<DoubleToBf16>();

}  // namespace kfuse::test
