// SPDX-License-Identifier: Apache-2.0
// The kernels of rows in double.
#include "row_operator_list.hpp"

namespace kfuse::test {

template std::vector<RowOperator<AllDouble>> row_operators<AllDouble>();

}  // namespace kfuse::test
