// SPDX-License-Identifier: Apache-2.0
// Every row operator, for tests of what is true of all of them. Their kernels are compiled once, in row_operators.cpp.
#ifndef KFUSE_TESTS_ROW_OPERATORS_HPP
#define KFUSE_TESTS_ROW_OPERATORS_HPP

#include <functional>
#include <string>
#include <vector>

#include "row_arguments.hpp"

namespace kfuse::test {

struct RowOperator {
  std::string name;
  std::function<void(Arguments&)> call;
  bool knows_row = false;  // values depend on the number of their row

  void operator()(Arguments& a) const { call(a); }
  // What its errors begin with; several lines of one operator differ in what follows a comma.
  std::string label() const { return "kfuse::" + name.substr(0, name.find(',')); }
};

std::vector<RowOperator> row_operators();

}  // namespace kfuse::test

#endif
