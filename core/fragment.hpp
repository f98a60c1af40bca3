// SPDX-License-Identifier: Apache-2.0
// Small matrix products in registers, and the tiles of team memory that their operands come from.
//
// Kokkos has no matrix instructions, so each backend that has some offers a Fragment<Element>; the host has one in
// plain loops. A kernel written over its verbs does not know which lane holds what:
//
//   rows, columns, depth             of one product: sums [rows, columns] += a [rows, depth] b [depth, columns]
//   lanes                            hold it together; all of them must come to each call
//   own_rows                         rows of the sums that one lane has entries of
//   A, B, Sums                       one lane's share; Sums are float, and zero at first
//   Fragment(rank)                   the verbs of the lane of this rank in its team
//   load_a(tile, r, c)               a(i, k) = tile(r + i, c + k)
//   load_b(tile, r, c)               b(k, j) = tile(r + k, c + j)
//   load_b_transposed(tile, r, c)    b(k, j) = tile(r + j, c + k)
//   multiply_add(sums, a, b)         in an order that depends on nothing
//   for_each(sums, f)                f(Entry, float&) for each entry that this lane owns
//   own_row(i)                       the row of the entries with Entry::own == i
//   reduce_rows(lanes, x, merge)     x[own_rows], one value a row of each lane, merged over the lanes that share it
//   as_operand(sums)                 an A of the sums, rounded to Element (columns == depth)
//   store(sums, tile, r, c)          tile(r + i, c + j) = sums(i, j), rounded to Element
//
// r and c are multiples of the product's extents.
#ifndef KFUSE_CORE_FRAGMENT_HPP
#define KFUSE_CORE_FRAGMENT_HPP

#include <kfuse/core/element.hpp>

#include <Kokkos_Core.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace kfuse {

// One entry of a fragment's sums: where it stands, and in which of its lane's rows.
struct Entry {
  int own, row, column;
};

namespace impl {

// A matrix in team memory, row after row. The 16-byte chunks of each row change places with its number, so that the
// same columns of eight rows lie in different banks. `data` is aligned to `pitch`, the bytes of a row.
template <class Element_, int columns_>
struct Tile {
  using Element = Element_;
  static constexpr int columns = columns_;
  static constexpr int pitch = columns * int(sizeof(Element));
  static constexpr int chunk = 16 / int(sizeof(Element));  // elements that lie together
  static_assert(pitch % 128 == 0, "eight chunks change places, so a row is a multiple of eight");

  std::byte* data;

  KOKKOS_FUNCTION static int offset(int row, int column) {
    return row * pitch + ((column * int(sizeof(Element))) ^ int(unsigned(row) % 8 * 16));
  }
  KOKKOS_FUNCTION Element* at(int row, int column) const {
    return reinterpret_cast<Element*>(data + offset(row, column));
  }
};

// Where tiles can begin in memory that has room for `alignment` bytes more than they take.
KOKKOS_INLINE_FUNCTION std::byte* aligned(void* memory, int alignment) {
  return static_cast<std::byte*>(memory) + (0 - reinterpret_cast<std::uintptr_t>(memory)) % alignment;
}

struct VisitEntry {
  KOKKOS_FUNCTION void operator()(Entry, float&) const {}
};

// What every backend's fragment must have, as far as types go.
template <class F>
concept IsFragment = F::columns == F::depth&& F::own_rows* F::lanes % F::rows == 0 &&
                     requires(F const f, typename F::Sums sums, typename F::A a, typename F::B b,
                              Tile<typename F::Element, 64> tile) {
  { f.load_a(tile, 0, 0) } -> std::same_as<typename F::A>;
  { f.load_b(tile, 0, 0) } -> std::same_as<typename F::B>;
  { f.load_b_transposed(tile, 0, 0) } -> std::same_as<typename F::B>;
  { f.as_operand(sums) } -> std::same_as<typename F::A>;
  { f.own_row(0) } -> std::same_as<int>;
  f.multiply_add(sums, a, b);
  f.for_each(sums, VisitEntry());
  f.store(sums, tile, 0, 0);
};

}  // namespace impl
}  // namespace kfuse

#endif
