// SPDX-License-Identifier: Apache-2.0
// Stages, and the chains they form.
//
// A stage is one small step on the values of a row; a chain is stages in order and becomes one kernel (fuse.hpp).
// A stage is a plain struct that names its kind:
//
//   struct Square {
//     using stage = kfuse::ElementStage;
//     template <class X>
//     KOKKOS_FUNCTION void apply(X& x, kfuse::Place) const {
//       for (auto& v : x) v *= v;
//     }
//   };
//
// ElementStage  apply(x, place) maps the values x at a place. It may read memory (kfuse::read) there, or write it
//               (kfuse::write), and then says so, below; one that writes is given x as const. In two steps, a kernel
//               can read ahead, for all stages of a chain at once, and lose no time in between; the stage then has no
//               apply:
//                 fetch<X>(place) -> F   reads (kfuse::fetch), and does no more with what it has read than it must; of
//                                        some places more than once
//                 take(x, F, place)      the rest
// RowStage      also reduces over the row. With Real = typename X::Real:
//                 identity<Real>() -> Sum      the sum of nothing
//                 accumulate(sum, x, place)    takes x in; or accumulate(sum, x, place, P), with what prepare(row) -> P
//                                              knows of the row beforehand
//                 merge(sum, other)            joins two sums; the order is fixed by the row's length
//               or, if Sum has a `reference` that its `shares` are relative to, such as a maximum,
//                 refer(sum, reference)        makes it relative to one that is as large or larger
//                 join(shares, other)          of one reference: adds them up, either way round
//                 finish(sum, columns) -> R    or finish(sum, columns, row); like prepare, it only computes: all lanes
//                                              call both, those without a row with the last one and any sum
//                 apply(x, place, r)           maps x, knowing the row's result
//                 conclude(r, row)             if there is one: called once a row, may write memory that is the row's
// PairStage     maps x knowing the values of another place of the same row:
//                 partner<width>(place) -> Place   where these are, for a pack of `width` values
//                 apply(x, other, place)
//               and, so that few rows of a product may go with it in one launch (fuse_linear.hpp):
//                 product_pairs(columns) -> ProductPairs   where these places are, in rows of so many columns
// JoinStage     makes one value of each pair of columns of a product, first in the chain that follows it
//                 product_pairs(columns)    as above
//                 join(x, other)            x = what it makes of x and the second of the pair
//                 with_loaded(product, f)   f(a chain that makes the same of a product in memory)
//
// What a stage may also state, and the library then uses for checks, the choice of the kernel and the traffic:
//   using element = E               the element type it reads or writes
//   std::array<Span, n> reads() const, writes() const
//   Shape shape() const             the rows and columns it brings (a chain's first such stage decides)
//   void check(std::string_view where, Shape) const       throws kfuse::Error
//   DataStatus status; RandomSource random      members: what it reports, and the numbers it draws
//   static constexpr int flops = n  operations for each value
//   static constexpr bool computes_at_length = true   taking values in takes longer than reading them, in double: lanes
//                                   with more registers then do it
//   static constexpr bool commutes = true   merging gives the same either way round (but for the sign of a zero)
//   static constexpr int extra_registers = n   32-bit registers a lane needs beyond the values it holds
//   int granularity() const         columns that belong together: values never straddle a multiple of it
//   static constexpr bool in_place = true   it reads and writes the same values itself, in one apply
//   static constexpr bool row_input = true    what it fetches is a Packed<element, ...> of the matrix `from`, from its
//                                   own row and columns, and of nothing else: so wide rows can be kept
//   static constexpr bool column_input = true   the same of the vector `from`, from its own columns
//   static constexpr bool drawn = true    what it fetches is made and not read: in time that goes by waiting for memory
// Where a chain begins with two stages of a user's own, `using kfuse::operator|;` makes them join.
#ifndef KFUSE_CORE_CHAIN_HPP
#define KFUSE_CORE_CHAIN_HPP

#include <kfuse/core/check.hpp>
#include <kfuse/core/tensor.hpp>
#include <kfuse/core/traffic.hpp>
#include <kfuse/core/values.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace kfuse {

struct ElementStage {};
struct RowStage {};
struct PairStage {};
struct JoinStage {};

template <class S>
concept Stage = requires {
  typename S::stage;
}
&&std::is_trivially_copyable_v<S>;

namespace impl {
template <class S>
concept HasGroups = requires(S const& s) {
  s.granularity();
};
template <class S, class Kind>
constexpr bool is_stage_kind = std::is_same_v<typename S::stage, Kind>;
}  // namespace impl

// Which columns of a product a stage takes in pairs. Of every `group` columns (an even number), the first 2 * distance
// are in pairs `distance` apart, (i, i + distance), and those beyond are in pairs of neighbours.
struct ProductPairs {
  int distance, group;
};

// The rows a chain runs over.
struct Shape {
  std::ptrdiff_t rows = 0;
  int columns = 0;
  friend bool operator==(Shape const&, Shape const&) = default;
};

// Memory that a stage touches: `rows` runs of `row_bytes`, `stride` bytes apart.
struct Span {
  void const* data = nullptr;
  std::ptrdiff_t rows = 0;
  std::ptrdiff_t row_bytes = 0;
  std::ptrdiff_t stride = 0;
  int element_bytes = 0;       // of what is accessed in packs; 0 if read one by one, whatever the alignment
  std::ptrdiff_t moved = -1;   // bytes that move, if not all of it
  char const* name = nullptr;  // that of the argument, for errors

  std::ptrdiff_t bytes() const { return moved >= 0 ? moved : rows * row_bytes; }
  bool empty() const { return rows == 0 || row_bytes == 0; }
};

template <class Element>
Span span_of(Tensor<Element, 2> const& t) {
  constexpr int size = sizeof(Element);
  std::ptrdiff_t const stride = t.extent(0) > 1 ? t.stride(0) * size : 0;
  return {t.data, t.extent(0), std::ptrdiff_t(t.extent(1)) * size, stride, size, -1, t.name};
}
template <class Element>
Span span_of(Tensor<Element, 1> const& t) {
  constexpr int size = sizeof(Element);
  return {t.data, 1, std::ptrdiff_t(t.extent(0)) * size, 0, size, -1, t.name};
}
// Of higher ranks, all that lies between the first and the last element. `stride` has the alignment of all strides.
template <class Element, int rank>
requires(rank > 2) Span span_of(Tensor<Element, rank> const& t) {
  constexpr int size = sizeof(Element);
  Span span{t.data, t.empty() ? 0 : 1, size, 0, size, -1, t.name};
  for (int d = 0; d < rank; ++d) span.row_bytes += (t.extent(d) - 1) * t.stride(d) * size;
  for (int d = 0; d < rank - 1; ++d) span.stride |= t.stride(d) * size;
  return span;
}

// Stages in order.
template <Stage... S>
struct Chain;
template <>
struct Chain<> {
  static constexpr int size = 0;
};
template <Stage First, Stage... Rest>
struct Chain<First, Rest...> {
  static constexpr int size = 1 + sizeof...(Rest);
  First first;
  Chain<Rest...> rest;
};
template <Stage Only>
struct Chain<Only> {
  static constexpr int size = 1;
  Only first;
  static constexpr Chain<> rest{};
};

template <class T>
struct IsChain : std::false_type {};
template <class... S>
struct IsChain<Chain<S...>> : std::true_type {};

template <class T>
concept StageOrChain = Stage<T> || IsChain<T>::value;

namespace impl {

template <int i, class C>
KOKKOS_FUNCTION constexpr auto& stage(C& chain) {
  if constexpr (i == 0)
    return chain.first;
  else
    return stage<i - 1>(chain.rest);
}

template <Stage S>
Chain<S> as_chain(S const& s) {
  return {s};
}
template <class... S>
Chain<S...> const& as_chain(Chain<S...> const& c) {
  return c;
}

template <class... B>
Chain<B...> joined(Chain<> const&, Chain<B...> const& b) {
  return b;
}
template <class First, class... Rest, class... B>
Chain<First, Rest..., B...> joined(Chain<First, Rest...> const& a, Chain<B...> const& b) {
  if constexpr (sizeof...(Rest) + sizeof...(B) == 0)
    return {a.first};
  else
    return {a.first, joined(a.rest, b)};
}

}  // namespace impl

template <StageOrChain A, StageOrChain B>
auto operator|(A const& a, B const& b) {
  return impl::joined(impl::as_chain(a), impl::as_chain(b));
}

namespace impl {

// Calls f(stage) for each stage, in order, on the host.
template <class... S, class F>
void for_each_stage(Chain<S...> const& chain, F const& f) {
  if constexpr (sizeof...(S) > 0) {
    f(chain.first);
    for_each_stage(chain.rest, f);
  }
}

template <class S>
struct StageElement {
  using type = void;
};
template <class S>
requires requires {
  typename S::element;
}
struct StageElement<S> {
  using type = typename S::element;
};

template <class S>
constexpr int extra_registers_of() {
  if constexpr (requires { S::extra_registers; })
    return S::extra_registers;
  else
    return 0;
}

template <class S>
constexpr bool writes_memory = requires(S const& s) {
  s.writes();
};
template <class S>
constexpr bool reads_memory = requires(S const& s) {
  s.reads();
};
template <class S>
constexpr bool is_in_place = requires {
  requires S::in_place;
};
template <class S>
constexpr bool is_row_input = requires {
  requires S::row_input;
};
template <class S>
constexpr bool is_column_input = requires {
  requires S::column_input;
};
template <class S>
constexpr bool is_drawn = requires {
  requires S::drawn;
};
template <class S>
constexpr bool computes_at_length = requires {
  requires S::computes_at_length;
};

// A chain works in double as soon as one of its stages touches doubles.
template <class C>
struct ChainTypes;
template <class... S>
struct ChainTypes<Chain<S...>> {
  using Real = std::conditional_t<(std::is_same_v<typename StageElement<S>::type, double> || ...), double, float>;

  template <class E>
  static constexpr int size_or(int other) {
    if constexpr (std::is_void_v<E>)
      return other;
    else
      return int(sizeof(E));
  }
  // Bytes of the narrowest element, which sets how many values a lane takes at once: 16 bytes of it, and 8 at most.
  static constexpr int narrowest = std::min({16, size_or<typename StageElement<S>::type>(16)...});
  static constexpr int width = std::max(1, std::min(8, 16 / (narrowest == 16 ? 4 : narrowest)));

  static constexpr int row_stages = (int(is_stage_kind<S, RowStage>) + ... + 0);
  // A double takes two registers, and so do elements that are wider than those which set the width.
  static constexpr int widest = std::max({0, size_or<typename StageElement<S>::type>(0)...});
  static constexpr int stage_registers = std::max({0, extra_registers_of<S>()...});
  static constexpr int extra_registers =
      stage_registers + (std::is_same_v<Real, double> ? 16 : 0) + (widest * width > 16 ? 8 : 0);
  static constexpr bool has_pairs = (is_stage_kind<S, PairStage> || ...);
  // Registers that keep the row inputs of a pack, in fours. 0: they are not kept, because there are none, or too many
  // (two inputs of double, of which rows held as values take half), or values of other places are needed.
  template <class Given>
  static constexpr int chunks_of() {
    if constexpr (is_row_input<Given>)
      return (width * int(sizeof(typename Given::element)) + 15) / 16;
    else
      return 0;
  }
  static constexpr int readers = (int(reads_memory<S>) + ... + 0), row_inputs = (int(is_row_input<S>) + ... + 0);
  static constexpr int all_chunks = (chunks_of<S>() + ... + 0);
  static constexpr int input_chunks =
      has_pairs || all_chunks > (std::is_same_v<Real, double> ? 1 : 2) || stage_registers > 16 ? 0 : all_chunks;
  static constexpr int pack_registers = width * int(sizeof(Real)) / 4;
  // Does a stage write values, so that reductions alone are not enough?
  static constexpr bool has_stores = ((writes_memory<S> && !is_stage_kind<S, RowStage>) || ...);
  static constexpr bool writes = (writes_memory<S> || ...);
  static constexpr bool has_groups = (HasGroups<S> || ...);
  static constexpr bool draws = (is_drawn<S> || ...);
  static constexpr bool computes = (computes_at_length<S> || ...);
};

template <class S>
auto reads(S const& s) {
  if constexpr (requires { s.reads(); })
    return s.reads();
  else
    return std::array<Span, 0>{};
}
template <class S>
auto writes(S const& s) {
  if constexpr (requires { s.writes(); })
    return s.writes();
  else
    return std::array<Span, 0>{};
}

// Are all arguments aligned for accesses of `width` elements at every multiple of `width` columns?
template <class C>
bool is_wide(C const& chain, int width) {
  bool wide = true;
  for_each_stage(chain, [&](auto const& s) {
    auto const aligned = [&](Span const& span) {
      auto const bytes = std::uintptr_t(std::min(16, width * std::max(1, span.element_bytes)));
      if (span.element_bytes == 0) return;
      if (reinterpret_cast<std::uintptr_t>(span.data) % bytes != 0 || std::uintptr_t(span.stride) % bytes != 0)
        wide = false;
    };
    for (Span const& span : reads(s)) aligned(span);
    for (Span const& span : writes(s)) aligned(span);
  });
  return wide;
}

// Do packs of `width` values lie within the groups of all stages?
template <class C>
bool is_in_groups(C const& chain, int width) {
  bool in_groups = true;
  for_each_stage(chain, [&](auto const& s) {
    if constexpr (HasGroups<std::remove_cvref_t<decltype(s)>>) in_groups = in_groups && s.granularity() % width == 0;
  });
  return in_groups;
}

template <class C>
Shape shape_of(C const& chain, std::string_view where) {
  Shape shape{-1, -1};
  for_each_stage(chain, [&](auto const& s) {
    if constexpr (requires { s.shape(); })
      if (shape.rows < 0) shape = s.shape();
  });
  check(shape.rows >= 0, where, "no stage of this chain says how many rows there are; begin it with load(...)");
  return shape;
}

}  // namespace impl

// The memory a chain must move over rows of this shape and its arithmetic, from its stages' own statements.
template <class... S>
Traffic traffic(Chain<S...> const& chain, Shape shape) {
  Traffic sum;
  impl::for_each_stage(chain, [&](auto const& s) {
    using Given = std::remove_cvref_t<decltype(s)>;
    for (Span const& span : impl::reads(s)) sum.bytes_read += std::size_t(span.bytes());
    for (Span const& span : impl::writes(s)) sum.bytes_written += std::size_t(span.bytes());
    if constexpr (requires { Given::flops; }) sum.flops += std::size_t(Given::flops) * shape.rows * shape.columns;
  });
  return sum;
}

template <class... S>
Traffic traffic(Chain<S...> const& chain) {
  return traffic(chain, impl::shape_of(chain, "traffic"));
}

// What the stages would move as launches of their own: each then also loads its input and stores its output, in the
// element type `element_bytes` wide.
template <class... S>
Traffic traffic_unfused(Chain<S...> const& chain, int element_bytes) {
  Shape const shape = impl::shape_of(chain, "traffic");
  std::size_t const row_values = std::size_t(shape.rows) * shape.columns * element_bytes;
  Traffic sum = traffic(chain);
  bool first = true;
  impl::for_each_stage(chain, [&](auto const& s) {
    using Given = std::remove_cvref_t<decltype(s)>;
    if constexpr (!impl::writes_memory<Given>) {
      if (!first) sum.bytes_read += row_values;
      sum.bytes_written += first ? 0 : row_values;
    }
    first = false;
  });
  return sum;
}

}  // namespace kfuse

#endif
