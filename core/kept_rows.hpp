// SPDX-License-Identifier: Apache-2.0
// Rows whose inputs are kept in registers as they came from memory, and each pass over the row computes its values from
// there: so more rows are in flight, and what is computed again is cheaper than waiting for memory.
#ifndef KFUSE_CORE_KEPT_ROWS_HPP
#define KFUSE_CORE_KEPT_ROWS_HPP

#include <kfuse/core/chain.hpp>
#include <kfuse/core/evaluate.hpp>
#include <kfuse/core/launch.hpp>
#include <kfuse/core/read_ahead.hpp>
#include <kfuse/core/row_plan.hpp>
#include <kfuse/core/row_reduce.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>

namespace kfuse::impl {

// One row to a team.
template <class Real, int width, int lanes, int vectors, class C>
struct KeptRowsKernel {
  static constexpr int threads = lanes, rows_per_team = 1;
  using X = Values<Real, width, Access::wide>;
  // What is kept, and as little more as does without spilling. In double, 64 in all let two rows of 64 KiB be in
  // flight.
  static constexpr bool is_narrow = vectors <= 2, reduces_once = ChainTypes<C>::row_stages == 1;
  static constexpr int kept_registers = 4 * vectors * ChainTypes<C>::input_chunks,
                       others = reduces_once && !is_narrow ? 28 : 32;
  static constexpr int registers = std::is_same_v<Real, double>
                                       ? std::min(64, others + kept_registers + ChainTypes<C>::extra_registers)
                                       : std::min(64, others + kept_registers) + ChainTypes<C>::extra_registers;
  // What the stages after the reduction read comes with the row, where there are registers for it: of narrow rows, and
  // in double, whose packs are small.
  static constexpr int all_registers =
      vectors * registers_ahead<X, Ahead::all>(std::type_identity<C>{}) + width * int(sizeof(Real)) / 4 + 16;
  static constexpr bool keeps_all =
      reduces_once && all_registers <= registers && (is_narrow || std::is_same_v<Real, double>);
  using Kept = ReadAhead<X, keeps_all ? Ahead::all : Ahead::row_inputs, C>;
  using Scratch = ReduceScratch<slot_bytes<Real>(std::type_identity<C>{})>;

  C chain;
  std::ptrdiff_t rows;
  int columns;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const team_lanes(team);
    Scratch scratch{static_cast<std::byte*>(team_lanes.scratch(Scratch::bytes(threads, LanesOf<Team>::width)))};
    Place const first{team.league_rank(), team_lanes.rank() * width};
    Kept kept[vectors];
    read_all(team_lanes, first, kept);
    Results<Real, C> results;
    run<0>(team_lanes, first, kept, results, scratch);
  }

 private:
  template <class L>
  KOKKOS_FUNCTION void read_all(L const& team_lanes, Place first, Kept* kept) const {
    if constexpr (keeps_all) {
      // Without conditions, which compilers wait for: beyond a row's end, its last pack is read again, for nothing.
      auto const place = [=, this](int v) {
        return Place{first.row, Kokkos::min(first.column + v * lanes * width, columns - width)};
      };
#pragma unroll
      for (int v = 0; v < vectors; ++v) read_ahead(chain, kept[v], place(v));
      team_lanes.reads_stay_before();
#pragma unroll
      for (int v = 0; v < vectors; ++v) draw_ahead(chain, kept[v], place(v));
    } else {
      each(first, [&](Place at, int v) { read_ahead(chain, kept[v], at); });
    }
  }
  template <class F>
  KOKKOS_FUNCTION void each(Place at, F const& visit) const {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      if (at.column < columns) visit(at, v);
      at.column += lanes * width;
    }
  }

  template <int i, class L>
  KOKKOS_FUNCTION void run(L const& team_lanes, Place first, Kept const* kept, Results<Real, C>& results,
                           Scratch& scratch) const {
    if constexpr (i == C::size) {
      if constexpr (ChainTypes<C>::has_stores)
        each(first, [&](Place at, int v) {
          X x;
          evaluate_read<C::size, Stores::yes>(chain, kept[v], x, at, results);
        });
    } else {
      auto const& s = stage<i>(chain);
      if constexpr (is_stage_kind<std::remove_cvref_t<decltype(s)>, RowStage>) {
        auto sum = s.template identity<Real>();
        auto const known = prepare(s, first.row);
        each(first, [&](Place at, int v) {
          X x;
          evaluate_read<i, Stores::no>(chain, kept[v], x, at, results);
          accumulate(s, sum, x, at, known);
        });
        result<i>(results) = finish(s, reduce_row(team_lanes, lanes, sum, s, scratch), columns, first.row);
        if (first.column == 0) conclude(s, result<i>(results), first.row);
      }
      run<i + 1>(team_lanes, first, kept, results, scratch);
    }
  }
};

}  // namespace kfuse::impl

#endif
