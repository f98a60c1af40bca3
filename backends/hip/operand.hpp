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
  using Words = impl::WordsOf<Element, size>;
  static constexpr int per_chunk = Words::per_chunk * 4 / int(sizeof(Element));

  std::uint32_t word[size / 2];

  // tile(row, column + k) for k < size
  template <class Tile>
  KOKKOS_FUNCTION static Operand of_row(Tile const& tile, int row, int column) {
    struct {
      typename Words::Chunk chunk[Words::chunks];
    } read;
#pragma unroll
    for (int c = 0; c < Words::chunks; ++c)
      read.chunk[c] = *reinterpret_cast<typename Words::Chunk const*>(tile.at(row, column + c * per_chunk));
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
    static_assert(size == per_chunk, "a row's chunks do not lie side by side");
    *reinterpret_cast<typename Words::Chunk*>(tile.at(row, column)) = Kokkos::bit_cast<typename Words::Chunk>(*this);
  }
};

}  // namespace kfuse::hip

#endif
