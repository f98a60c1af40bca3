// SPDX-License-Identifier: Apache-2.0
// A matrix product in the terms of the vendors' libraries: what the operators ask of Blas, and Blas of a backend.
#ifndef KFUSE_CORE_PRODUCT_HPP
#define KFUSE_CORE_PRODUCT_HPP

#include <kfuse/core/element_type.hpp>

#include <cstddef>

namespace kfuse {

enum class Transpose { no, yes };

namespace impl {

// One matrix for each member of a batch: the first one's memory, and strides in elements. Columns are contiguous.
template <class Memory>
struct Operand {
  Memory* data = nullptr;
  std::ptrdiff_t row_stride = 0, batch_stride = 0;
};

// What a library may apply to a product on its way to memory. Which of it depends on the library: see Blas::fuses.
enum class ProductActivation { none, relu, gelu_tanh };
enum class Residual { none, in_place, elsewhere };
struct ProductEpilogue {
  bool bias = false;
  ProductActivation activation = ProductActivation::none;
  Residual residual = Residual::none;
};

// d = activation(alpha a b + bias) + residual
struct Product {
  ElementType element;
  int batch, rows, columns, depth;
  Operand<void const> a;  // [rows, depth]
  Operand<void const> b;  // [depth, columns], or
  Transpose transpose_b;  // yes: [columns, depth]
  Operand<void> d;        // [rows, columns]
  double alpha = 1;
  void const* bias = nullptr;  // [columns]; null: none
  ProductActivation activation = ProductActivation::none;
  Operand<void const> residual{};  // [rows, columns]; null: none; may be d

  bool is_plain() const { return bias == nullptr && activation == ProductActivation::none; }
};

}  // namespace impl
}  // namespace kfuse

#endif
