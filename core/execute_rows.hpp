// SPDX-License-Identifier: Apache-2.0
// Runs a chain over rows.
//
// Four kernels, one set of stages. FlatKernel runs chains that reduce nothing, and counts packs through all rows.
// HeldRowsKernel (held_rows.hpp) has a row in the registers of its lanes: memory is touched by loads and stores alone.
// KeptRowsKernel (kept_rows.hpp) has there what was read of the row. PassRowsKernel goes over the row once for each row
// stage and once to store, computing the values again; it takes any length and any alignment, and is the host's loop.
//
// The bits of a result depend on the chain, the row's length and the element types only. All kernels give lane l the
// packs l, l + lanes, ... in this order, and merge lanes alike. Rows too long for registers are cut into segments of a
// fixed length whose sums are merged in order, so it makes no difference whether one team takes all segments of a row,
// or, where rows are few and a workspace is given, each segment has a team of its own.
#ifndef KFUSE_CORE_EXECUTE_ROWS_HPP
#define KFUSE_CORE_EXECUTE_ROWS_HPP

#include <kfuse/core/chain.hpp>
#include <kfuse/core/divisor.hpp>
#include <kfuse/core/evaluate.hpp>
#include <kfuse/core/held_rows.hpp>
#include <kfuse/core/kept_rows.hpp>
#include <kfuse/core/launch.hpp>
#include <kfuse/core/read_ahead.hpp>
#include <kfuse/core/row_plan.hpp>
#include <kfuse/core/row_reduce.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

namespace kfuse::impl {

// A chain without reductions, on packs counted through all rows.
template <class Real, int width, Access access, class C>
struct FlatKernel {
  static constexpr Ahead ahead = access == Access::wide ? Ahead::all : Ahead::none;  // single values take registers
  using X = Values<Real, width, access>;
  static constexpr int pack_ahead = registers_ahead<X, ahead>(std::type_identity<C>{});
  static constexpr int extra = ChainTypes<C>::extra_registers;
  // A lane has 64 bytes or so on their way: four packs of one input, or two of several, or of one where stages need
  // registers of their own (H200, 2026-11-30: batchnorm of NCHW at 0.93 and not 0.88 of a copy).
  static constexpr bool four_packs =
      access == Access::wide && ChainTypes<C>::all_chunks <= 1 && pack_ahead > 0 && pack_ahead <= 8 && extra == 0;
  static constexpr int threads = flat_layout.lanes, vectors = four_packs ? 4 : 2, packs_here = threads * vectors;
  // Beside what is read ahead, a pack of values and places. One by one, values come under conditions of their own.
  static constexpr int registers =
      (four_packs ? 24 : (access == Access::wide ? 20 : 48) + std::max(8, extra)) + vectors * pack_ahead;

  C chain;
  std::ptrdiff_t rows;
  int columns;
  Divisor packs;  // of a row

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const lanes(team);
    std::ptrdiff_t const begin = std::ptrdiff_t(team.league_rank()) * packs_here;
    // Counted from the first row, or, where that number is too large, from the one this team begins in.
    std::ptrdiff_t const first_row = begin < largest ? 0 : begin / std::ptrdiff_t(packs.divisor);
    auto const first = unsigned(begin - first_row * std::ptrdiff_t(packs.divisor)) + unsigned(lanes.rank());
    auto const place = [=, this](int v) {
      unsigned const pack = first + unsigned(v * threads), row = packs.quotient(pack);
      return Place{first_row + row, int(pack - row * packs.divisor) * width};
    };
    // Without conditions all that is read is on its way before the first of it is waited for.
    if (access == Access::wide && begin + packs_here <= rows * std::ptrdiff_t(packs.divisor))
      return run<Within::all>(place);
    run<Within::some>(place);
    if constexpr (access == Access::single)
      for (int v = 0; v < vectors; ++v) rest(place(v));
  }

 private:
  static constexpr std::ptrdiff_t largest = (std::ptrdiff_t(1) << 31) - packs_here;

  // Which of the team's packs lie within the rows.
  enum class Within { all, some };

  template <Within within, class P, class F>
  KOKKOS_FUNCTION void each(P const& place, F const& visit) const {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      Place const at = place(v);
      if constexpr (within == Within::some)
        if (at.row >= rows || (access == Access::single && at.column + width > columns)) continue;
      visit(at, v);
    }
  }
  template <Within within, class P>
  KOKKOS_FUNCTION void run(P const& place) const {
    ReadAhead<X, ahead, C> read[vectors];
    each<within>(place, [&](Place at, int v) { read_ahead(chain, read[v], at); });
    each<within>(place, [&](Place at, int v) { draw_ahead(chain, read[v], at); });
    each<within>(place, [&](Place at, int v) {
      X x;
      evaluate_read<C::size, Stores::yes>(chain, read[v], x, at, Results<Real, C>{});
    });
  }
  // What is left over of a row, one by one.
  KOKKOS_FUNCTION void rest(Place at) const {
    if (at.row >= rows || at.column + width <= columns) return;
    for (; at.column < columns; ++at.column) {
      Values<Real, 1, Access::single> x;
      evaluate<C::size, Stores::yes>(chain, x, at, Results<Real, C>{});
    }
  }
};

// Rows on a run-time number of lanes each, in passes. With `only >= 0` the teams of a row take one segment each, and
// the launch does one pass: the sums of row stage `only`, into `partials`, or (only == C::size) the stores.
template <class Real, int width, Access access, class C>
struct PassRowsKernel {
  static constexpr int threads = access == Access::wide ? segment_layout<row_kind<C>>.lanes : 1024;
  static constexpr int registers = 64;
  static constexpr int whole_rows = -1;
  static constexpr int alone = 64;  // packs that a lane with a row to itself adds up before it merges
  static constexpr std::size_t slot = slot_bytes<Real>(std::type_identity<C>{});
  using Scratch = ReduceScratch<slot, std::clamp(int(256 / slot), 1, 8)>;  // 16 KiB for a team, unless sums are larger

  C chain;
  std::ptrdiff_t rows;
  int columns;
  int team_size, row_lanes, segments, segment_columns;
  int only = whole_rows;
  std::byte* partials = nullptr;  // [row stage][row][segment] slots

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const team_lanes(team);
    Scratch scratch{nullptr};
    if (ChainTypes<C>::row_stages > 0 && row_lanes > LanesOf<Team>::width)
      scratch.memory =
          static_cast<std::byte*>(team_lanes.scratch(Scratch::bytes(team_lanes.size(), LanesOf<Team>::width)));
    int const rows_here = team_lanes.size() / row_lanes;
    Work work{0, team_lanes.rank() % row_lanes, 0, segments};
    if (only == whole_rows) {
      work.row = std::ptrdiff_t(team.league_rank()) * rows_here + team_lanes.rank() / row_lanes;
    } else {
      work.row = team.league_rank() / segments;
      work.first_segment = team.league_rank() % segments;
      work.last_segment = work.first_segment + 1;
    }
    Results<Real, C> results;
    run<0, 0>(team_lanes, work, results, scratch);
  }

 private:
  struct Work {
    std::ptrdiff_t row;
    int rank;
    int first_segment, last_segment;  // [first, last)
  };

  // Packs on their way from memory, as registers allow. Where values are stored, much of the row is near.
  static constexpr int most_at_once = ChainTypes<C>::row_stages > 1 ? 2 : 4;
  static constexpr int when_summed =
      access == Access::wide && ChainTypes<C>::input_chunks > 0 ? most_at_once / ChainTypes<C>::input_chunks : 0;
  static constexpr int when_stored = when_summed / 2;
  // The packs of a row that a lane goes over, from the first on or from the last.
  enum class Direction { forward, backward };
  template <int at_once, Direction direction>
  struct Packs {
    ReadAhead<Values<Real, width, access>, Ahead::row_inputs, C> coming[std::max(1, at_once)];
    int column, step, last_column;  // of the next pack, between two, of the last
    int left;                       // packs

    // The column of the pack that comes `packs` after the next one, or of the last.
    KOKKOS_FUNCTION int after(int packs) const {
      int const c = column + packs * step;
      return direction == Direction::forward ? Kokkos::min(c, last_column) : Kokkos::max(c, last_column);
    }
  };
  // Those of this lane among the columns [first, last).
  template <int at_once, Direction direction>
  KOKKOS_FUNCTION Packs<at_once, direction> packs_of(Work const& work, int first, int last) const {
    int const step = row_lanes * width, begin = first + work.rank * width;
    Packs<at_once, direction> packs;
    packs.left = work.row < rows && begin + width <= last ? (last - width - begin) / step + 1 : 0;
    packs.step = direction == Direction::forward ? step : -step;
    int const end = begin + (packs.left - 1) * step;
    packs.column = direction == Direction::forward ? begin : end;
    packs.last_column = direction == Direction::forward ? end : begin;
    if (packs.left > 0)
#pragma unroll
      for (int k = 0; k < at_once; ++k) read_ahead(chain, packs.coming[k], Place{work.row, packs.after(k)});
    return packs;
  }
  // visit(x, place, read) for the next `most` of the packs, a multiple of `at_once`, or those that are left. What comes
  // is read without conditions, at the end some of it once more: under a condition, a compiler would wait for it.
  template <int at_once, Direction direction, class F>
  KOKKOS_FUNCTION void each(Packs<at_once, direction>& packs, std::ptrdiff_t row, int most, F const& visit) const {
    int here = packs.left < most ? packs.left : most;
    packs.left -= here;
    auto const next = [&](auto const& read) {
      Values<Real, width, access> x;
      visit(x, Place{row, packs.column}, read);
    };
    if constexpr (at_once == 0) {
      for (; here > 0; --here, packs.column += packs.step) next(NothingRead{});
    } else {
      for (; here >= at_once; here -= at_once)
#pragma unroll
        for (int k = 0; k < at_once; ++k, packs.column += packs.step) {
          next(packs.coming[k]);
          read_ahead(chain, packs.coming[k], Place{row, packs.after(at_once)});
        }
#pragma unroll
      for (int k = 0; k + 1 < at_once; ++k)
        if (k < here) {
          next(packs.coming[k]);
          packs.column += packs.step;
        }
    }
  }
  // The same for what is left over at the row's end, one by one: at most one lane has some, and none of wide accesses.
  template <class F>
  KOKKOS_FUNCTION void each_single(Work const& work, int first, int last, F const& visit) const {
    if constexpr (access == Access::single && width > 1) {
      int const whole = (last - first) / width;  // packs
      if (work.row >= rows || whole % row_lanes != work.rank) return;
      for (int c = first + whole * width; c < last; ++c) {
        Values<Real, 1, Access::single> x;
        visit(x, Place{work.row, c}, NothingRead{});
      }
    }
  }
  KOKKOS_FUNCTION int segment_begin(int segment) const {
    return segment * segment_columns;
  }
  KOKKOS_FUNCTION int segment_end(int segment) const {
    return segment == segments - 1 ? columns : (segment + 1) * segment_columns;
  }
  // The pass that follows the sums of row stage `i`: those of the next one, or the stores.
  template <int i>
  KOKKOS_FUNCTION static constexpr int pass_after() {
    if constexpr (i + 1 == C::size)
      return C::size;
    else if constexpr (is_stage_kind<std::remove_cvref_t<decltype(stage<i + 1>(std::declval<C const&>()))>, RowStage>)
      return i + 1;
    else
      return pass_after<i + 1>();
  }
  template <class Sum>
  KOKKOS_FUNCTION Sum* partial(int row_stage, std::ptrdiff_t row, int segment) const {
    return reinterpret_cast<Sum*>(partials + ((row_stage * rows + row) * segments + segment) * std::ptrdiff_t(slot));
  }

  template <int i, int row_stage, class L>
  KOKKOS_FUNCTION void run(L const& team_lanes, Work const& work, Results<Real, C>& results, Scratch& scratch) const {
    if constexpr (i == C::size) {
      // What the last pass came to last is near, so it comes first.
      if constexpr (ChainTypes<C>::has_stores) {
        int const begin = segment_begin(work.first_segment), end = segment_end(work.last_segment - 1);
        auto const visit = [&](auto& x, Place at, auto const& read) {
          evaluate_read<C::size, Stores::yes>(chain, read, x, at, results);
        };
        constexpr Direction direction = row_stage > 0 ? Direction::backward : Direction::forward;
        auto packs = packs_of<when_stored, direction>(work, begin, end);
        each(packs, work.row, packs.left, visit);
        each_single(work, begin, end, visit);
      }
    } else {
      auto const& s = stage<i>(chain);
      using Given = std::remove_cvref_t<decltype(s)>;
      if constexpr (is_stage_kind<Given, RowStage>) {
        using Sum = SumOf<Real, Given>;
        Sum total = s.template identity<Real>();
        if (only == whole_rows || only == i) {
          int const last = segment_end(work.last_segment - 1);
          auto const known = prepare(s, Kokkos::min(work.row, rows - 1));
          auto packs = packs_of<when_summed, Direction::forward>(work, segment_begin(work.first_segment), last);
          int const block = row_lanes == 1 ? alone * width : segment_columns, block_packs = block / (row_lanes * width);
          SegmentTotal<Sum> of_segments{total};
          for (int segment = work.first_segment; segment < work.last_segment; ++segment) {
            int const begin = segment_begin(segment), end = segment_end(segment);
            Sum sum = s.template identity<Real>();
            for (int first = begin; first < end; first += block) {
              Sum part = s.template identity<Real>();
              auto const visit = [&](auto& x, Place at, auto const& read) {
                evaluate_read<i, Stores::no>(chain, read, x, at, results);
                accumulate(s, part, x, at, known);
              };
              each(packs, work.row, block_packs, visit);
              if (end == columns && end - first <= block) each_single(work, first, end, visit);
              if (first == begin)
                sum = part;
              else
                merge(s, sum, part);
            }
            of_segments.add(team_lanes, row_lanes, sum, s, scratch, segment + 1 == work.last_segment);
          }
          total = of_segments.total;
        }
        if (only == i) {
          if (work.rank == 0) *partial<Sum>(row_stage, work.row, work.first_segment) = total;
          return;
        }
        if (only != whole_rows) {
          total = *partial<Sum>(row_stage, work.row, 0);
          for (int segment = 1; segment < segments; ++segment)
            merge(s, total, *partial<Sum>(row_stage, work.row, segment));
        }
        result<i>(results) = finish(s, total, columns, Kokkos::min(work.row, rows - 1));
        constexpr int next = pass_after<i>();
        bool const first_to_know = only == whole_rows || (only == next && work.first_segment == 0);
        if (work.rank == 0 && work.row < rows && first_to_know) conclude(s, result<i>(results), work.row);
        run<i + 1, row_stage + 1>(team_lanes, work, results, scratch);
      } else {
        run<i + 1, row_stage>(team_lanes, work, results, scratch);
      }
    }
  }
};

template <class Real, int width, Access access, class Space, class C>
void launch_flat(Space const& space, std::string const& label, C const& chain, Shape shape) {
  using Kernel = FlatKernel<Real, width, access, C>;
  int const packs = (shape.columns + width - 1) / width;
  std::ptrdiff_t const teams = (shape.rows * packs + Kernel::packs_here - 1) / Kernel::packs_here;
  launch(space, label, teams, 0, Kernel{chain, shape.rows, shape.columns, Divisor(unsigned(packs))});
}

template <class Kernel, class Space, class C>
void launch_in_registers(Space const& space, std::string const& label, C const& chain, Shape shape) {
  constexpr int lanes = Kernel::threads / Kernel::rows_per_team;
  launch(space, label, (shape.rows + Kernel::rows_per_team - 1) / Kernel::rows_per_team,
         lanes > Backend<Space>::lanes ? Kernel::Scratch::bytes(Kernel::threads, Backend<Space>::lanes) : 0,
         Kernel{chain, shape.rows, shape.columns});
}
// Rows in registers, in the layout of `plan`, which is number `i` of those of its path or a later one.
template <class Real, int width, RowPath path, int i = 0, class Space, class C>
void launch_held(Space const& space, std::string const& label, C const& chain, Shape shape, RowPlan const& plan) {
  constexpr auto layouts = layouts_of<path, row_kind<C>>();
  if constexpr (i < int(layouts.size())) {
    constexpr RowLayout layout = layouts[i];
    if (!(plan.layout == layout)) return launch_held<Real, width, path, i + 1>(space, label, chain, shape, plan);
    using Held = HeldRowsKernel<Real, width, layout.lanes, layout.vectors, C>;
    using Kept = KeptRowsKernel<Real, width, layout.lanes, layout.vectors, C>;
    // As it was read, a row of 16 bits takes half of the registers, and its weight comes with it, before any of it is
    // waited for. In double it takes as many, and what stages have computed at length is not computed again.
    using Types = ChainTypes<C>;
    constexpr bool reduces_once = Types::row_stages == 1,
                   computes_again = std::is_same_v<Real, double> && Types::computes && !reduces_once,
                   keeps = path == RowPath::wide ? Types::input_chunks > 0 && !computes_again
                                                 : Types::input_chunks == 1 && reduces_once && Held::rows_per_team == 1;
    launch_in_registers<std::conditional_t<keeps, Kept, Held>>(space, label, chain, shape);
  }
}

// The row in passes. `partials` is null, or memory for the sums of all segments: then each has a team of its own.
template <class Real, int width, Access access, class Space, class C>
void launch_passes(Space const& space, std::string const& label, C const& chain, Shape shape, RowPlan const& plan,
                   std::byte* partials) {
  using Kernel = PassRowsKernel<Real, width, access, C>;
  constexpr bool on_host = Backend<Space>::is_host;
  int const lanes = on_host ? 1 : plan.layout.lanes;
  int const team = on_host ? 1 : std::max(lanes, 128);
  std::size_t const scratch = lanes > Backend<Space>::lanes ? Kernel::Scratch::bytes(team, Backend<Space>::lanes) : 0;
  Kernel kernel{chain, shape.rows, shape.columns, team, lanes, plan.segments, plan.segment_columns()};
  bool const reduces = ChainTypes<C>::row_stages > 0;
  if (plan.segments == 1 || (reduces && partials == nullptr)) {
    std::ptrdiff_t const rows_here = team / lanes;
    return launch(space, label, (shape.rows + rows_here - 1) / rows_here, scratch, kernel);
  }
  kernel.partials = partials;
  kernel.team_size = kernel.row_lanes = lanes;  // one row to a team
  auto const launch_pass = [&](int pass, char const* suffix) {
    kernel.only = pass;
    launch(space, label + suffix, shape.rows * plan.segments, scratch, kernel);
  };
  int i = 0;
  for_each_stage(chain, [&](auto const& s) {
    if constexpr (is_stage_kind<std::remove_cvref_t<decltype(s)>, RowStage>) launch_pass(i, "::partial");
    ++i;
  });
  launch_pass(C::size, "");
}

// The chain over its rows, in packs of `width` values, by the kernel that suits.
template <class Real, int width, Access access, class Space, class C>
void launch_rows(Space const& space, std::string const& label, C const& chain, Shape shape, std::byte* partials) {
  constexpr bool reduces = ChainTypes<C>::row_stages > 0, on_host = Backend<Space>::is_host;
  RowPlan const plan = row_plan<C>(shape.columns, width);
  if constexpr (!reduces && !on_host) {
    launch_flat<Real, width, access>(space, label, chain, shape);
  } else {
    if constexpr (!on_host && access == Access::wide) {
      if (plan.path == RowPath::held) return launch_held<Real, width, RowPath::held>(space, label, chain, shape, plan);
      if (plan.path == RowPath::wide) return launch_held<Real, width, RowPath::wide>(space, label, chain, shape, plan);
    }
    launch_passes<Real, width, access>(space, label, chain, shape, plan, partials);
  }
}

}  // namespace kfuse::impl

#endif
