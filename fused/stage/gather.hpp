// SPDX-License-Identifier: Apache-2.0
// gather(table, indices): row r of the chain is row indices(r) of the table, as an embedding looks up tokens.
// An index outside the table gives a row of zeros and reads nothing.
#ifndef KFUSE_FUSED_STAGE_GATHER_HPP
#define KFUSE_FUSED_STAGE_GATHER_HPP

#include <kfuse/fused/stage/load_store.hpp>

namespace kfuse {

enum class Gathered { replaces, adds };

template <Gathered gathered, class Element, class Memory = void>
struct Gather {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;
  static constexpr int extra_registers = 16;

  Tensor<Element const, 2> table;  // [table rows, columns]
  Tensor<int const, 1> indices;    // [rows]

  // Adding needs something to add to, which says how many rows there are.
  Shape shape() const requires(gathered == Gathered::replaces) { return size(); }
  Shape size() const { return {indices.extent(0), table.extent(1)}; }
  auto reads() const {
    Span rows = span_of(table), index = span_of(indices);
    rows.moved = std::ptrdiff_t(indices.extent(0)) * rows.row_bytes;
    index.element_bytes = 0;
    return std::array{rows, index};
  }
  void check(std::string_view where, Shape shape) const {
    impl::check(shape == size(), where,
                "gather: needs one index for each row, and a table with as many columns as the chain");
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    int const row = indices(at.row);
    X looked_up{};
    if (row >= 0 && row < table.extent(0)) read(table.at(row, at.column), looked_up);
    for (int i = 0; i < X::width; ++i) {
      if constexpr (gathered == Gathered::adds)
        x[i] += looked_up[i];
      else
        x[i] = looked_up[i];
    }
  }
};

namespace impl {
template <Gathered gathered, TensorLike T, TensorLike I>
auto gather_stage(T const& table, I const& indices) {
  return Gather<gathered, ElementOf<T>, MemoriesOf<T, I>>{tensor<2>(table, "gather: table"),
                                                          tensor<1>(indices, "gather: indices")};
}
}  // namespace impl

// table: [entries, columns]; indices: int, [rows].
template <TensorLike T, TensorLike I>
auto gather(T const& table, I const& indices) {
  return impl::gather_stage<Gathered::replaces>(table, indices);
}
// The same, added to the values: the second of several embeddings.
template <TensorLike T, TensorLike I>
auto add_gathered(T const& table, I const& indices) {
  return impl::gather_stage<Gathered::adds>(table, indices);
}

}  // namespace kfuse

#endif
