// SPDX-License-Identifier: Apache-2.0
// The kernels of rows in double.
#include "row_operator_list.hpp"

namespace kfuse::test {

template std::vector<RowOperator<AllDouble>> row_operators<AllDouble>();
template std::vector<RowOperator<DoubleToBf16>> row_operators<DoubleToBf16>();

}  // namespace kfuse::test
