// SPDX-License-Identifier: Apache-2.0
// Rows that fit into the registers of their lanes: memory is touched by loads and stores alone.
#ifndef KFUSE_CORE_HELD_ROWS_HPP
#define KFUSE_CORE_HELD_ROWS_HPP

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

// The number of stages before the first reduction.
template <class... S>
constexpr int stages_before_reduction(std::type_identity<Chain<S...>>) {
  int i = 0;
  (void)((is_stage_kind<S, RowStage> || (++i, false)) || ...);
  return i;
}

// One row on `lanes` lanes that hold it in `vectors` packs each; several short rows to a team.
template <class Real, int width, int lanes, int vectors, class C>
struct HeldRowsKernel {
  static constexpr int threads = std::max(lanes, 128);
  // 32 bytes a lane in 40 registers, 64 in 64: what keeps most bytes in flight without spilling (H200, 2026-11-29). A
  // second input takes more. A team of 1024 can have 64, and in double they do for 128 bytes on 256 lanes and more.
  static constexpr bool at_most_64 = threads == 1024 || (std::is_same_v<Real, double> && threads >= 256 &&
                                                         vectors * ChainTypes<C>::pack_registers <= 32);
  static constexpr int registers =
      std::min(at_most_64 ? 64 : 255, (vectors > 2 ? 64 : 40) + ChainTypes<C>::extra_registers +
                                          (ChainTypes<C>::row_inputs > 1 ? 8 : 0) +
                                          (ChainTypes<C>::draws && lanes < threads ? 8 : 0));
  static constexpr int rows_per_team = threads / lanes;
  using X = Values<Real, width, Access::wide>;
  using Scratch = ReduceScratch<slot_bytes<Real>(std::type_identity<C>{})>;

  C chain;
  std::ptrdiff_t rows;
  int columns;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const team_lanes(team);
    Scratch scratch{nullptr};
    if constexpr (lanes > LanesOf<Team>::width)
      scratch.memory = static_cast<std::byte*>(team_lanes.scratch(Scratch::bytes(threads, LanesOf<Team>::width)));
    int const rank = int(unsigned(team_lanes.rank()) % lanes), group = int(unsigned(team_lanes.rank()) / lanes);
    Place const first{std::ptrdiff_t(team.league_rank()) * rows_per_team + group, rank * width};
    Read read[vectors];
    each(first, [&](int v, Place at) { read_ahead(chain, read[v], at); });
    each(first, [&](int v, Place at) { draw_ahead(chain, read[v], at); });
    X held[vectors];
    Results<Real, C> results;
    run<0>(team_lanes, first, read, held, results, scratch);
  }

 private:
  // What the stages after the reduction read is on its way from the start, if it takes registers that are free.
  static constexpr bool reads_all =
      rows_per_team == 1 && ChainTypes<C>::row_stages == 1 &&
      vectors * (width * int(sizeof(Real)) / 4 +
                 registers_ahead<X, Ahead::all, stages_before_reduction(std::type_identity<C>{})>(
                     std::type_identity<C>{})) +
              16 <=
          registers;
  static constexpr bool draws_ahead = ChainTypes<C>::draws && threads <= 512;  // with more, registers are too few
  static constexpr Ahead ahead = reads_all ? Ahead::all : draws_ahead ? Ahead::of_row : Ahead::none;
  using Read = ReadAhead<X, ahead, C>;
  // No row is so short that it ends before these: it would have a narrower layout.
  static constexpr int full = rows_per_team > 1 ? 0 : full_vectors<row_kind<C>>({lanes, vectors});

  template <class F>
  KOKKOS_FUNCTION void each(Place at, F const& visit) const {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      if (v < full || (at.column < columns && (rows_per_team == 1 || at.row < rows))) visit(v, at);
      at.column += lanes * width;
    }
  }

  template <int i, class L>
  KOKKOS_FUNCTION void run(L const& team_lanes, Place first, Read const* read, X* held, Results<Real, C>& results,
                           Scratch& scratch) const {
    if constexpr (i < C::size) {
      auto const& s = stage<i>(chain);
      using Given = std::remove_cvref_t<decltype(s)>;
      if constexpr (is_stage_kind<Given, RowStage>) {
        auto sum = s.template identity<Real>();
        std::ptrdiff_t const row = rows_per_team > 1 ? Kokkos::min(first.row, rows - 1) : first.row;
        auto const known = prepare(s, row);
        each(first, [&](int v, Place at) { accumulate(s, sum, held[v], at, known); });
        result<i>(results) = finish(s, reduce_row(team_lanes, lanes, sum, s, scratch), columns, row);
        if (first.column == 0 && first.row == row) conclude(s, result<i>(results), first.row);
        each(first, [&](int v, Place at) { s.apply(held[v], at, result<i>(results)); });
      } else if constexpr (is_stage_kind<Given, PairStage>) {
        each(first, [&](int v, Place at) {
          X other;
          evaluate<i, Stores::no>(chain, other, s.template partner<X::width>(at), results);
          s.apply(held[v], other, at);
        });
      } else if constexpr (IsAhead<ahead, Given, X>) {
        each(first, [&](int v, Place at) { take(s, held[v], read_from<i>(read[v]).first, at); });
      } else {
        each(first, [&](int v, Place at) { apply(s, held[v], at); });
      }
      run<i + 1>(team_lanes, first, read, held, results, scratch);
    }
  }
};

}  // namespace kfuse::impl

#endif
