// SPDX-License-Identifier: Apache-2.0
// Reductions over the lanes of a row, in an order that depends on the number of lanes alone.
#ifndef KFUSE_CORE_ROW_REDUCE_HPP
#define KFUSE_CORE_ROW_REDUCE_HPP

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <type_traits>

namespace kfuse::impl {

// Team memory that reductions over rows wider than a lane group take turns in. Two turns are enough: whoever is about
// to write a turn again has passed a barrier that all readers of it came to afterwards.
template <std::size_t slot_bytes>
struct ReduceScratch {
  KOKKOS_FUNCTION static constexpr std::size_t bytes(int threads, int lane_group) {
    return 2 * slot_bytes * (threads / lane_group);
  }

  std::byte* memory;
  int turn = 0;

  template <class Sum>
  KOKKOS_FUNCTION Sum* next(int groups) {
    static_assert(sizeof(Sum) <= slot_bytes);
    auto* slots = reinterpret_cast<Sum*>(memory + std::size_t(turn) * slot_bytes * groups);
    turn ^= 1;
    return slots;
  }
};

// a = a and b merged, where `a` comes from the lane with the lower rank: both lanes get the same bits even if the
// merge is not commutative. Plain numbers are merged by sum or maximum, which is.
template <class Stage, class Sum>
KOKKOS_FUNCTION void merge_lanes(Stage const& stage, Sum& own, Sum const& other, bool own_is_second) {
  if constexpr (std::is_arithmetic_v<Sum>) {
    stage.merge(own, other);
  } else {
    Sum first = own, second = other;  // a choice between the two as wholes would be one of addresses
    if (own_is_second) {
      first = other;
      second = own;
    }
    stage.merge(first, second);
    own = first;
  }
}

// Merges one sum per lane over the `row_lanes` lanes (a power of two) of each row; every lane gets the result. Rows
// wider than a lane group need one barrier, which all lanes of the team must come to.
template <class Lanes, class Sum, class Stage, class Scratch>
KOKKOS_FUNCTION Sum reduce_row(Lanes const& lanes, int row_lanes, Sum sum, Stage const& stage, Scratch& scratch) {
  constexpr int group = Lanes::width;
  int const rank = lanes.rank();
#pragma unroll
  for (int step = group / 2; step > 0; step /= 2)
    if (step < row_lanes) merge_lanes(stage, sum, lanes.shuffle_xor(sum, step), rank & step);
  if (row_lanes > group) {
    int const groups = row_lanes / group, own = rank / group;
    Sum* slots = scratch.template next<Sum>(lanes.size() / group);
    if (rank % group == 0) slots[own] = sum;
    lanes.barrier();  // the sums of all lane groups are there
    sum = slots[own / groups * groups + rank % groups];
#pragma unroll
    for (int step = group / 2; step > 0; step /= 2)
      if (step < groups) merge_lanes(stage, sum, lanes.shuffle_xor(sum, step), rank & step);
  }
  return sum;
}

}  // namespace kfuse::impl

#endif
