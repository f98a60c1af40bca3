// SPDX-License-Identifier: Apache-2.0
// Reductions over the lanes of a row, in an order that depends on the number of lanes alone.
#ifndef KFUSE_CORE_ROW_REDUCE_HPP
#define KFUSE_CORE_ROW_REDUCE_HPP

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <type_traits>

namespace kfuse::impl {

// Team memory that reductions over rows wider than a lane group take turns in. Two turns are enough: whoever is about
// to write a turn again has passed a barrier that all readers of it came to afterwards. In a turn, as many reductions
// as `at_once` may share a barrier.
template <std::size_t slot_bytes, int at_once = 1>
struct ReduceScratch {
  static constexpr int reductions = at_once;
  KOKKOS_FUNCTION static constexpr std::size_t bytes(int threads, int lane_group) {
    return 2 * slot_bytes * at_once * (threads / lane_group);
  }

  std::byte* memory;
  int turn = 0;

  template <class Sum>
  KOKKOS_FUNCTION Sum* next(int groups) {
    static_assert(sizeof(Sum) <= slot_bytes);
    auto* slots = reinterpret_cast<Sum*>(memory + std::size_t(turn) * slot_bytes * at_once * groups);
    turn ^= 1;
    return slots;
  }
};

// A sum that is relative to a reference: exponentials, say, to about the largest of a row's values.
template <class Sum>
concept RelativeSum = requires(Sum sum) {
  sum.reference;
  sum.shares;
};

template <class Real>
KOKKOS_FUNCTION Real larger(Real a, Real b) {
  return a > b ? a : b;
}

// a = a and b merged, a first.
template <class Stage, class Sum>
KOKKOS_FUNCTION void merge(Stage const& stage, Sum& a, Sum b) {
  if constexpr (RelativeSum<Sum>) {
    auto const reference = larger(a.reference, b.reference);
    stage.refer(a, reference);
    stage.refer(b, reference);
    stage.join(a.shares, b.shares);
  } else {
    stage.merge(a, b);
  }
}

// Is a merge the same either way round? Plain numbers are merged by sum or maximum, which is.
template <class Stage, class Sum>
constexpr bool commutes = std::is_arithmetic_v<Sum> || RelativeSum<Sum> || requires {
  requires Stage::commutes;
};

// own = own and other merged, that of the lane with the lower rank first: so both lanes get the same bits.
template <class Stage, class Sum>
KOKKOS_FUNCTION void merge_lanes(Stage const& stage, Sum& own, Sum const& other, bool own_is_second) {
  if constexpr (commutes<Stage, Sum>) {
    merge(stage, own, other);
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

// Merges one sum per lane over `count` lanes side by side (a power of two), or over whole lane groups where these are
// smaller; every lane gets the result. Relative sums are referred to the largest reference once, and then added up.
template <class Lanes, class Sum, class Stage>
KOKKOS_FUNCTION Sum reduce_lanes(Lanes const& lanes, int count, Sum sum, Stage const& stage) {
  auto const each_step = [&](auto const& visit) {
#pragma unroll
    for (int step = Lanes::width / 2; step > 0; step /= 2)
      if (step < count) visit(step);
  };
  if constexpr (RelativeSum<Sum>) {
    auto reference = sum.reference;
    each_step([&](int step) { reference = larger(reference, lanes.shuffle_xor(reference, step)); });
    stage.refer(sum, reference);
    each_step([&](int step) { stage.join(sum.shares, lanes.shuffle_xor(sum.shares, step)); });
  } else {
    auto const rank = unsigned(lanes.rank());
    each_step([&](int step) { merge_lanes(stage, sum, lanes.shuffle_xor(sum, step), rank & unsigned(step)); });
  }
  return sum;
}
// The same over the `groups` lane groups of each row, whose sums are in `slots`, one for each group of the team.
template <class Lanes, class Sum, class Stage>
KOKKOS_FUNCTION Sum reduce_slots(Lanes const& lanes, int groups, Sum const* slots, Stage const& stage) {
  constexpr unsigned group = Lanes::width;
  auto const rank = unsigned(lanes.rank()), row_groups = unsigned(groups);
  return reduce_lanes(lanes, groups, slots[rank / group / row_groups * row_groups + rank % group % row_groups], stage);
}

// Merges one sum per lane over the `row_lanes` lanes (a power of two) of each row; every lane gets the result. Rows
// wider than a lane group need one barrier, which all lanes of the team must come to.
template <class Lanes, class Sum, class Stage, class Scratch>
KOKKOS_FUNCTION Sum reduce_row(Lanes const& lanes, int row_lanes, Sum sum, Stage const& stage, Scratch& scratch) {
  constexpr int group = Lanes::width;
  sum = reduce_lanes(lanes, row_lanes, sum, stage);
  if (row_lanes > group) {
    auto const rank = unsigned(lanes.rank());
    Sum* slots = scratch.template next<Sum>(lanes.size() / group);
    if (rank % group == 0) slots[rank / group] = sum;
    lanes.barrier();  // the sums of all lane groups are there
    sum = reduce_slots(lanes, row_lanes / group, slots, stage);
  }
  return sum;
}

// The sums of a row's segments, merged over its lanes and then in order. Segments share barriers, so that the lanes of
// a team seldom wait for each other.
template <class Sum>
struct SegmentTotal {
  Sum total;
  Sum* slots = nullptr;
  int waiting = 0;  // segments whose sums are in the slots
  bool empty = true;

  // `last` is the same for all lanes, as is the number of segments.
  template <class Lanes, class Stage, class Scratch>
  KOKKOS_FUNCTION void add(Lanes const& lanes, int row_lanes, Sum sum, Stage const& stage, Scratch& scratch,
                           bool last) {
    constexpr int group = Lanes::width;
    sum = reduce_lanes(lanes, row_lanes, sum, stage);
    if (row_lanes <= group) return add(sum, stage);
    int const groups = lanes.size() / group;
    auto const rank = unsigned(lanes.rank());
    if (waiting == 0) slots = scratch.template next<Sum>(groups);
    if (rank % group == 0) slots[waiting * groups + rank / group] = sum;
    if (++waiting < Scratch::reductions && !last) return;
    lanes.barrier();  // the sums of all lane groups are there
    for (int i = 0; i < waiting; ++i) add(reduce_slots(lanes, row_lanes / group, slots + i * groups, stage), stage);
    waiting = 0;
  }

 private:
  template <class Stage>
  KOKKOS_FUNCTION void add(Sum const& sum, Stage const& stage) {
    if (empty)
      total = sum;
    else
      merge(stage, total, sum);
    empty = false;
  }
};

}  // namespace kfuse::impl

#endif
