// SPDX-License-Identifier: Apache-2.0
// Every row operator, for tests of what is true of all of them. Their kernels are compiled once for each choice of
// types, in row_operators*.cpp, from the list in row_operator_list.hpp.
#ifndef KFUSE_TESTS_ROW_OPERATORS_HPP
#define KFUSE_TESTS_ROW_OPERATORS_HPP

#include <kfuse/core/element.hpp>

#include <functional>
#include <string>
#include <vector>

#include "row_arguments.hpp"

namespace kfuse::test {

// What a row of results depends on: the same row of the arguments alone; its number, too, as in dropout; or all rows,
// as in a mean.
enum class Rows { alone, numbered, joint };

template <class T>
struct RowOperator {
  std::string name;
  Rows rows;
  std::function<void(Arguments<T>&)> call;

  void operator()(Arguments<T>& a) const { call(a); }
  // What its errors begin with; several lines of one operator differ in what follows a comma.
  std::string label() const { return "kfuse::" + name.substr(0, name.find(',')); }
};

// One type; 16-bit rows with all else in float, as a residual stream is kept; and double that becomes 16 bits.
using AllBf16 = Types<bf16>;
using AllDouble = Types<double>;
using Bf16ToFloat = Types<bf16, float, float>;
using DoubleToBf16 = Types<double, float, bf16>;

template <class T>
std::vector<RowOperator<T>> row_operators();

}  // namespace kfuse::test

#endif
