// SPDX-License-Identifier: Apache-2.0
// gather(table, indices): row r of the chain is row indices(r) of the table, as an embedding looks up tokens.
// An index outside the table gives a row of zeros; it raises DataFault::index, if anybody asks.
#ifndef KFUSE_FUSED_STAGE_GATHER_HPP
#define KFUSE_FUSED_STAGE_GATHER_HPP

#include <kfuse/core/data_status.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <concepts>
#include <cstdint>
#include <string>

namespace kfuse {

enum class Gathered { replaces, adds };

template <Gathered gathered, class Element, class Index, class Memory = void>
struct Gather {
  static_assert(std::signed_integral<Index> && (sizeof(Index) == 4 || sizeof(Index) == 8),
                "kfuse: indices are int or std::int64_t");
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;
  static constexpr int extra_registers = 16;

  Tensor<Element const, 2> table;  // [table rows, columns]
  Tensor<Index const, 1> indices;  // [rows]
  DataStatus status = {};

  // Adding needs something to add to, which says how many rows there are.
  Shape shape() const requires(gathered == Gathered::replaces) { return size(); }
  Shape size() const { return {indices.extent(0), table.extent(1)}; }
  // Each row that is looked up counts, also if it has been before: which are distinct only the device knows.
  auto reads() const {
    Span rows = span_of(table), index = span_of(indices);
    rows.moved = std::ptrdiff_t(indices.extent(0)) * rows.row_bytes;
    index.element_bytes = 0;
    return std::array{rows, index};
  }
  void check(std::string_view where, Shape shape) const {
    impl::check(table.extent(1) == shape.columns, where, [&] {
      return impl::name_of(table) + ": has " + std::to_string(table.extent(1)) + " columns for " +
             impl::rows_text(shape) + "; give it as many";
    });
    impl::check(indices.extent(0) == shape.rows, where, [&] {
      return impl::name_of(indices) + ": has " + std::to_string(indices.extent(0)) + " entries for " +
             impl::rows_text(shape) + "; give it one index for each row";
    });
    impl::check(table.extent(0) > 0 || shape.rows == 0, where, [&] {
      return impl::name_of(table) + ": has no entries, so no index can be right; give it one at least";
    });
  }
  template <class X>
  struct Fetched {
    Packed<Element, X::width, X::access> row;
    bool inside;
  };
  template <class X>
  KOKKOS_FUNCTION Fetched<X> fetch(Place at) const {
    std::int64_t const row = indices(at.row);
    bool const inside = row >= 0 && row < table.extent(0);
    return {kfuse::fetch<X>(table.at(inside ? row : 0, at.column)), inside};
  }
  template <class X>
  KOKKOS_FUNCTION void take(X& x, Fetched<X> const& fetched, Place) const {
    if (!fetched.inside) status.raise(DataFault::index);
    X looked_up;
    unpack(fetched.row, looked_up);
    if (!fetched.inside) looked_up = X{};
    for (int i = 0; i < X::width; ++i) {
      if constexpr (gathered == Gathered::adds)
        x[i] = backend::add(x[i], looked_up[i]);
      else
        x[i] = looked_up[i];
    }
  }
};

namespace impl {
template <Gathered gathered, TensorLike T, TensorLike I, class Status>
auto gather_stage(T const& table, I const& indices, Status const& status) {
  return Gather<gathered, ElementOf<T>, ElementOf<I>, MemoriesOf<T, I, Status>>{
      tensor<2>(table, "kfuse", "gather: table"), tensor<1>(indices, "kfuse", "gather: indices"), status};
}
}  // namespace impl

// table: [entries, columns]; indices: int or std::int64_t, [rows]; status: a View<int> of rank 0, or a DataStatus.
template <TensorLike T, TensorLike I, std::convertible_to<DataStatus> Status = DataStatus>
auto gather(T const& table, I const& indices, Status const& status = {}) {
  return impl::gather_stage<Gathered::replaces>(table, indices, status);
}
// The same, added to the values: the second of several embeddings.
template <TensorLike T, TensorLike I, std::convertible_to<DataStatus> Status = DataStatus>
auto add_gathered(T const& table, I const& indices, Status const& status = {}) {
  return impl::gather_stage<Gathered::adds>(table, indices, status);
}

}  // namespace kfuse

#endif
