// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_HIP_OPERAND_HPP
#define KFUSE_BACKENDS_HIP_OPERAND_HPP

#include <kfuse/core/values.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace kfuse::hip {

// What one lane has of an operand of a matrix instruction: `size` entries that lie one after the other along the depth.
template <class Element, int size>
struct Operand {
  using Pack = impl::Pack<Element, size>;

  std::uint32_t word[size / 2];

  // tile(row, column + k) for k < size
  template <class Tile>
  KOKKOS_FUNCTION static Operand of_row(Tile const& tile, int row, int column) {
    struct {
      typename Pack::Chunk chunk[size / Pack::per_chunk];
    } read;
#pragma unroll
    for (int c = 0; c < size / Pack::per_chunk; ++c)
      read.chunk[c] = *reinterpret_cast<typename Pack::Chunk const*>(tile.at(row, column + c * Pack::per_chunk));
    return Kokkos::bit_cast<Operand>(read);
  }
  // tile(row + k, column) for k < size
  template <class Tile>
  KOKKOS_FUNCTION static Operand of_column(Tile const& tile, int row, int column) {
    struct {
      Element element[size];
    } read;
#pragma unroll
    for (int k = 0; k < size; ++k) read.element[k] = *tile.at(row + k, column);
    return Kokkos::bit_cast<Operand>(read);
  }
  // tile(row, column + k) = these
  template <class Tile>
  KOKKOS_FUNCTION void to_row(Tile const& tile, int row, int column) const {
    static_assert(size == Pack::per_chunk, "a row's chunks do not lie side by side");
    *reinterpret_cast<typename Pack::Chunk*>(tile.at(row, column)) = Kokkos::bit_cast<typename Pack::Chunk>(*this);
  }
};

}  // namespace kfuse::hip

#endif
