// SPDX-License-Identifier: Apache-2.0
// What the stages of a chain read at a place, before any of them works on it: as it is in memory, where 16-bit elements
// take half of the registers that their values would.
#ifndef KFUSE_CORE_READ_AHEAD_HPP
#define KFUSE_CORE_READ_AHEAD_HPP

#include <kfuse/core/chain.hpp>
#include <kfuse/core/evaluate.hpp>

#include <Kokkos_Core.hpp>

#include <type_traits>
#include <utility>

namespace kfuse::impl {

// Of which stages: those whose input is the row's own, these and those that draw for it, or all that read.
enum class Ahead { none, row_inputs, of_row, all };
template <Ahead ahead, class S>
constexpr bool is_ahead = ahead == Ahead::all || (ahead != Ahead::none && is_row_input<S>) ||
                          (ahead == Ahead::of_row && is_drawn<S>);
template <Ahead ahead, class S, class X>
concept IsAhead = Fetches<S, X> && is_ahead<ahead, S>;

template <class X, Ahead ahead, class C>
struct ReadAhead {};
template <class X, Ahead ahead, class First, class... Rest>
struct ReadAhead<X, ahead, Chain<First, Rest...>> {
  ReadAhead<X, ahead, Chain<Rest...>> rest;
};
template <class X, Ahead ahead, class First, class... Rest>
requires IsAhead<ahead, First, X>
struct ReadAhead<X, ahead, Chain<First, Rest...>> {
  decltype(std::declval<First const&>().template fetch<X>(Place{})) first;
  ReadAhead<X, ahead, Chain<Rest...>> rest;
};

// What stage `i` and those after it have read.
template <int i, class R>
KOKKOS_FUNCTION auto& read_from(R& read) {
  if constexpr (i == 0)
    return read;
  else
    return read_from<i - 1>(read.rest);
}

// 32-bit registers that what is read by stage `first` and those after it takes.
template <class X, Ahead ahead, int first = 0, class... S>
constexpr int registers_ahead(std::type_identity<Chain<S...>>) {
  auto const of = []<class Given>(std::type_identity<Given>) -> int {
    if constexpr (IsAhead<ahead, Given, X>)
      return (sizeof(std::declval<Given const&>().template fetch<X>(Place{})) + 3) / 4;
    else
      return 0;
  };
  int i = 0, sum = 0;
  ((sum += i++ < first ? 0 : of(std::type_identity<S>{})), ...);
  return sum;
}

// Fetches what is drawn, or all else.
template <bool drawn, int i = 0, class C, class X, Ahead ahead, class Rest>
KOKKOS_FUNCTION void fetch_ahead(C const& chain, ReadAhead<X, ahead, Rest>& read, Place at) {
  if constexpr (i < C::size) {
    auto const& s = stage<i>(chain);
    using Given = std::remove_cvref_t<decltype(s)>;
    if constexpr (IsAhead<ahead, Given, X> && is_drawn<Given> == drawn) read.first = s.template fetch<X>(at);
    fetch_ahead<drawn, i + 1>(chain, read.rest, at);
  }
}
// What comes from memory. Of several packs it is all on its way before anything is drawn, which takes as long.
template <class C, class X, Ahead ahead>
KOKKOS_FUNCTION void read_ahead(C const& chain, ReadAhead<X, ahead, C>& read, Place at) {
  fetch_ahead<false>(chain, read, at);
}
template <class C, class X, Ahead ahead>
KOKKOS_FUNCTION void draw_ahead(C const& chain, ReadAhead<X, ahead, C>& read, Place at) {
  fetch_ahead<true>(chain, read, at);
}

// x = what the chain's first `end` stages make of what was read at `at`. Stages that did not read ahead do so now.
template <int end, Stores stores, int i = 0, class C, class X, Ahead ahead, class Rest, class R>
KOKKOS_FUNCTION void evaluate_read(C const& chain, ReadAhead<X, ahead, Rest> const& read, X& x, Place at,
                                   R const& results) {
  if constexpr (i < end) {
    auto const& s = stage<i>(chain);
    using Given = std::remove_cvref_t<decltype(s)>;
    if constexpr (!IsAhead<ahead, Given, X>)
      evaluate<i + 1, stores, i>(chain, x, at, results);
    else if constexpr (stores == Stores::yes || !writes_memory<Given>)
      take(s, x, read.first, at);
    evaluate_read<end, stores, i + 1>(chain, read.rest, x, at, results);
  }
}

// Nothing was read ahead.
struct NothingRead {};
template <int end, Stores stores, class C, class X, class R>
KOKKOS_FUNCTION void evaluate_read(C const& chain, NothingRead, X& x, Place at, R const& results) {
  evaluate<end, stores>(chain, x, at, results);
}

}  // namespace kfuse::impl

#endif
