// SPDX-License-Identifier: Apache-2.0
// Rows of a batch of matrices, [batch, rows, columns], whose strides are free: the heads of tokens, the channels of
// images. Row r of the chain is row r % rows of matrix r / rows.
//
// load_batch(x)    the values of x
// store_batch(y)   y = the values, rounded to nearest
#ifndef KFUSE_FUSED_STAGE_BATCH_HPP
#define KFUSE_FUSED_STAGE_BATCH_HPP

#include <kfuse/core/check_chain.hpp>
#include <kfuse/core/divisor.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <cstddef>

namespace kfuse {

namespace impl {

// Takes the number of a chain's row apart: by a multiplication of integers below 2^31, where a division of 64 bits
// would cost more than the row's values, and beyond by a multiplication of doubles, which is off by one at most.
class BatchRows {
 public:
  struct Index {
    int batch, row;
  };

  BatchRows() = default;
  explicit BatchRows(int rows) : rows_(unsigned(rows > 0 ? rows : 1)), reciprocal_(1.0 / rows_.divisor) {}

  KOKKOS_FUNCTION Index of(std::ptrdiff_t row) const {
    if (row >> 31 == 0) {
      unsigned const batch = rows_.quotient(unsigned(row));
      return {int(batch), int(unsigned(row) - batch * rows_.divisor)};
    }
    auto batch = std::ptrdiff_t(double(row) * reciprocal_);
    std::ptrdiff_t const rows = rows_.divisor, rest = row - batch * rows;
    batch += rest < 0 ? -1 : rest >= rows ? 1 : 0;
    return {int(batch), int(row - batch * rows)};
  }

 private:
  Divisor rows_;
  double reciprocal_ = 1;
};

// As runs of one length at one distance, wherever the strides allow it: then an output may be in place of an input.
// Otherwise all that lies in between.
template <class Element>
Span span_of_batch(Tensor<Element, 3> const& t) {
  constexpr int size = sizeof(Element);
  std::ptrdiff_t const batch = t.extent(0), rows = t.extent(1), columns = t.extent(2);
  auto const runs = [&](std::ptrdiff_t n, std::ptrdiff_t length, std::ptrdiff_t stride) -> Span {
    return {t.data, n, length * size, n > 1 ? stride * size : 0, size, -1, t.name};
  };
  if (t.empty()) return {};
  if (rows == 1 || t.stride(1) == columns) return runs(batch, rows * columns, t.stride(0));
  if (batch == 1 || t.stride(0) == rows * t.stride(1)) return runs(batch * rows, columns, t.stride(1));
  Span span = span_of(t);
  span.moved = t.size() * size;
  return span;
}

template <class Element>
void check_batch(Tensor<Element, 3> const& t, std::string_view where, Shape shape) {
  Shape const own{std::ptrdiff_t(t.extent(0)) * t.extent(1), t.extent(2)};
  check(own == shape, where, [&] {
    return name_of(t) + ": shape " + shape_text(t) + " does not match the chain's " + rows_text(shape) +
           "; give it as many";
  });
}

}  // namespace impl

template <class Element, class Memory = void>
struct LoadBatch {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;

  Tensor<Element const, 3> from;  // [batch, rows, columns]
  impl::BatchRows rows;

  Shape shape() const { return {std::ptrdiff_t(from.extent(0)) * from.extent(1), from.extent(2)}; }
  auto reads() const { return std::array{impl::span_of_batch(from)}; }
  void check(std::string_view where, Shape shape) const { impl::check_batch(from, where, shape); }
  template <class X>
  KOKKOS_FUNCTION auto fetch(Place at) const {
    auto const index = rows.of(at.row);
    return kfuse::fetch<X>(from.at(index.batch, index.row, at.column));
  }
  template <class X, class Fetched>
  KOKKOS_FUNCTION void take(X& x, Fetched const& fetched, Place) const {
    unpack(fetched, x);
  }
};

template <class Element, class Memory = void>
struct StoreBatch {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;

  Tensor<Element, 3> to;  // [batch, rows, columns]
  impl::BatchRows rows;

  auto writes() const { return std::array{impl::span_of_batch(to)}; }
  void check(std::string_view where, Shape shape) const {
    impl::check_batch(to, where, shape);
    impl::check_lies_apart(to, where);
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X const& x, Place at) const {
    auto const index = rows.of(at.row);
    write(to.at(index.batch, index.row, at.column), x);
  }
};

// x: [batch, rows, columns], of any element type.
template <TensorLike T>
auto load_batch(T const& x) {
  auto const from = impl::tensor<3>(x, "kfuse", "load_batch");
  return LoadBatch<impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{from, impl::BatchRows(from.extent(1))};
}

// y: [batch, rows, columns]. It may be the memory of an argument that an earlier stage reads, where the rows of each
// matrix lie side by side or all rows lie at one distance.
template <TensorLike T>
auto store_batch(T const& y) {
  static_assert(!std::is_const_v<typename T::value_type>, "kfuse: store_batch needs a View whose values are not const");
  auto const to = impl::tensor<3>(y, "kfuse", "store_batch");
  return StoreBatch<impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{to, impl::BatchRows(to.extent(1))};
}

}  // namespace kfuse

#endif
