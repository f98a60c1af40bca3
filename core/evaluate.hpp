// SPDX-License-Identifier: Apache-2.0
// What a chain makes of the values at one place, and what its row stages have found out about the row.
#ifndef KFUSE_CORE_EVALUATE_HPP
#define KFUSE_CORE_EVALUATE_HPP

#include <kfuse/core/chain.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace kfuse::impl {

struct NoResult {};
// What a row stage knows of a row beforehand.
struct NothingKnown {};
template <class S>
KOKKOS_FUNCTION auto prepare(S const& s, std::ptrdiff_t row) {
  if constexpr (requires { s.prepare(row); })
    return s.prepare(row);
  else
    return NothingKnown{};
}
template <class S, class Sum, class X, class Known>
KOKKOS_FUNCTION void accumulate(S const& s, Sum& sum, X const& x, Place at, Known const& known) {
  if constexpr (std::is_same_v<Known, NothingKnown>)
    s.accumulate(sum, x, at);
  else
    s.accumulate(sum, x, at, known);
}

// What a row stage makes of the row's sum.
template <class S, class Sum>
KOKKOS_FUNCTION auto finish(S const& s, Sum const& sum, int columns, std::ptrdiff_t row) {
  if constexpr (requires { s.finish(sum, columns, row); })
    return s.finish(sum, columns, row);
  else
    return s.finish(sum, columns);
}
template <class Real, class S>
auto result_type() {
  if constexpr (is_stage_kind<S, RowStage>) {
    S const* s = nullptr;
    return std::type_identity<decltype(finish(*s, s->template identity<Real>(), 0, 0))>{};
  } else
    return std::type_identity<NoResult>{};
}
template <class Real, class S>
using SumOf = decltype(std::declval<S const&>().template identity<Real>());

// What each row stage of a chain has found out about the row.
template <class Real, class C>
struct Results {};
template <class Real, class First, class... Rest>
struct Results<Real, Chain<First, Rest...>> {
  typename decltype(result_type<Real, First>())::type first;
  Results<Real, Chain<Rest...>> rest;
};
template <int i, class R>
KOKKOS_FUNCTION constexpr auto& result(R& results) {
  if constexpr (i == 0)
    return results.first;
  else
    return result<i - 1>(results.rest);
}

// Bytes of the largest sum of a chain's row stages, in 16-byte steps.
template <class Real, class... S>
constexpr std::size_t slot_bytes(std::type_identity<Chain<S...>>) {
  auto const size = [](auto kind) -> std::size_t {
    using Given = typename decltype(kind)::type;
    if constexpr (is_stage_kind<Given, RowStage>)
      return sizeof(SumOf<Real, Given>);
    else
      return 0;
  };
  return (std::max({std::size_t(16), size(std::type_identity<S>{})...}) + 15) / 16 * 16;
}

template <class S, class X>
concept Fetches = requires(S const& s, Place at) {
  s.template fetch<X>(at);
};
// What an element stage may do with the values: one that writes leaves them as they are, as reductions pass it over.
template <class S, class X>
using ValuesFor = std::conditional_t<writes_memory<S>, X const, X>;
// x = what an element stage makes of the values at `at`, and of what it has fetched there.
template <class S, class X, class F>
KOKKOS_FUNCTION void take(S const& s, X& x, F const& fetched, Place at) {
  s.take(static_cast<ValuesFor<S, X>&>(x), fetched, at);
}
template <class S, class X>
KOKKOS_FUNCTION void apply(S const& s, X& x, Place at) {
  if constexpr (Fetches<S, X>)
    take(s, x, s.template fetch<X>(at), at);
  else
    s.apply(static_cast<ValuesFor<S, X>&>(x), at);
}

enum class Stores { no, yes };

// x = what the chain's first `end` stages make of the values at `at`.
template <int end, Stores stores, int i = 0, class C, class X, class R>
KOKKOS_FUNCTION void evaluate(C const& chain, X& x, Place at, R const& results) {
  if constexpr (i < end) {
    auto const& s = stage<i>(chain);
    using Given = std::remove_cvref_t<decltype(s)>;
    if constexpr (is_stage_kind<Given, RowStage>) {
      s.apply(x, at, result<i>(results));
    } else if constexpr (is_stage_kind<Given, PairStage>) {
      X other;
      evaluate<i, Stores::no>(chain, other, s.template partner<X::width>(at), results);
      s.apply(x, other, at);
    } else if constexpr (stores == Stores::yes || !writes_memory<Given>) {
      apply(s, x, at);
    }
    evaluate<end, stores, i + 1>(chain, x, at, results);
  }
}

// What a row stage may do once a row, by one of its lanes.
template <class S, class R>
KOKKOS_FUNCTION void conclude(S const& s, R const& result, std::ptrdiff_t row) {
  if constexpr (requires { s.conclude(result, row); }) s.conclude(result, row);
}

}  // namespace kfuse::impl

#endif
