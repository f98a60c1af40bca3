// SPDX-License-Identifier: Apache-2.0
// Wide rows: what stages read by row and column (row_input()) is kept in registers as it came from memory, and each
// pass over the row computes its values from there. 16-bit elements take half of the registers that their values would,
// so that more rows are in flight; and what is computed again is cheaper than waiting for memory.
#ifndef KFUSE_CORE_KEPT_ROWS_HPP
#define KFUSE_CORE_KEPT_ROWS_HPP

#include <kfuse/core/chain.hpp>
#include <kfuse/core/evaluate.hpp>
#include <kfuse/core/launch.hpp>
#include <kfuse/core/row_plan.hpp>
#include <kfuse/core/row_reduce.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>

namespace kfuse::impl {

// A pack of each row input of a chain, as it is in memory.
template <int width, class C>
struct KeptPack {};
template <int width, class First, class... Rest>
struct KeptPack<width, Chain<First, Rest...>> {
  KeptPack<width, Chain<Rest...>> rest;
};
template <int width, HasRowInput First, class... Rest>
struct KeptPack<width, Chain<First, Rest...>> {
  using Words = WordsOf<typename First::element, width>;
  typename Words::Chunk chunk[Words::chunks];
  KeptPack<width, Chain<Rest...>> rest;
};

// Reads the row inputs of stage `i` and those after it.
template <int i = 0, class C, class K>
KOKKOS_FUNCTION void keep(C const& chain, K& kept, Place at) {
  if constexpr (i < C::size) {
    auto const& s = stage<i>(chain);
    if constexpr (HasRowInput<std::remove_cvref_t<decltype(s)>>) {
      auto const* from =
          reinterpret_cast<std::remove_cvref_t<decltype(kept.chunk[0])> const*>(s.row_input().at(at.row, at.column));
#pragma unroll
      for (int c = 0; c < int(sizeof kept.chunk / sizeof kept.chunk[0]); ++c) kept.chunk[c] = from[c];
    }
    keep<i + 1>(chain, kept.rest, at);
  }
}

// x = what the chain's first `end` stages make of the kept row inputs at `at`.
template <int end, Stores stores, int i = 0, class C, class K, class X, class R>
KOKKOS_FUNCTION void evaluate_kept(C const& chain, K const& kept, X& x, Place at, R const& results) {
  if constexpr (i < end) {
    auto const& s = stage<i>(chain);
    using Given = std::remove_cvref_t<decltype(s)>;
    if constexpr (HasRowInput<Given>) {
      X input;
      unpack<typename Given::element>(kept.chunk, input);
      s.take(x, input);
    } else if constexpr (is_stage_kind<Given, RowStage>) {
      s.apply(x, at, result<i>(results));
    } else if constexpr (stores == Stores::yes || !writes_memory<Given>) {
      s.apply(x, at);
    }
    evaluate_kept<end, stores, i + 1>(chain, kept.rest, x, at, results);
  }
}

// Nothing is kept: stages read what they need.
struct NotKept {};
template <int end, Stores stores, class C, class X, class R>
KOKKOS_FUNCTION void evaluate_kept(C const& chain, NotKept, X& x, Place at, R const& results) {
  evaluate<end, stores>(chain, x, at, results);
}

// One row to a team.
template <class Real, int width, int lanes, int vectors, class C>
struct KeptRowsKernel {
  static constexpr int threads = lanes, rows_per_team = 1;
  // What is kept, and as little more as does without spilling.
  static constexpr int registers =
      std::min(64, (ChainTypes<C>::row_stages > 1 ? 32 : 28) + 4 * vectors * ChainTypes<C>::input_chunks) +
      ChainTypes<C>::extra_registers;
  using X = Values<Real, width, Access::wide>;
  using Scratch = ReduceScratch<slot_bytes<Real>(std::type_identity<C>{})>;

  C chain;
  std::ptrdiff_t rows;
  int columns;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const team_lanes(team);
    Scratch scratch{static_cast<std::byte*>(team_lanes.scratch(Scratch::bytes(threads, LanesOf<Team>::width)))};
    Place const first{team.league_rank(), team_lanes.rank() * width};
    KeptPack<width, C> kept[vectors];
    each(first, [&](Place at, int v) { keep(chain, kept[v], at); });
    Results<Real, C> results;
    run<0>(team_lanes, first, kept, results, scratch);
  }

 private:
  template <class F>
  KOKKOS_FUNCTION void each(Place at, F const& visit) const {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      if (at.column < columns) visit(at, v);
      at.column += lanes * width;
    }
  }

  template <int i, class L>
  KOKKOS_FUNCTION void run(L const& team_lanes, Place first, KeptPack<width, C> const* kept, Results<Real, C>& results,
                           Scratch& scratch) const {
    if constexpr (i == C::size) {
      if constexpr (ChainTypes<C>::has_stores)
        each(first, [&](Place at, int v) {
          X x;
          evaluate_kept<C::size, Stores::yes>(chain, kept[v], x, at, results);
        });
    } else {
      auto const& s = stage<i>(chain);
      if constexpr (is_stage_kind<std::remove_cvref_t<decltype(s)>, RowStage>) {
        auto sum = s.template identity<Real>();
        each(first, [&](Place at, int v) {
          X x;
          evaluate_kept<i, Stores::no>(chain, kept[v], x, at, results);
          s.accumulate(sum, x, at);
        });
        result<i>(results) = s.finish(reduce_row(team_lanes, lanes, sum, s, scratch), columns);
        if (first.column == 0) conclude(s, result<i>(results), first.row);
      }
      run<i + 1>(team_lanes, first, kept, results, scratch);
    }
  }
};

}  // namespace kfuse::impl

#endif
