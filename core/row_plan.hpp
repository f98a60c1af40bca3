// SPDX-License-Identifier: Apache-2.0
// How rows are spread over lanes, and with it the order of every reduction: a function of the chain, its element types
// and the row's length alone.
#ifndef KFUSE_CORE_ROW_PLAN_HPP
#define KFUSE_CORE_ROW_PLAN_HPP

#include <kfuse/core/chain.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

namespace kfuse::impl {

// How a row lies on its lanes: `lanes` lanes hold `vectors` packs each at a time.
struct RowLayout {
  int lanes, vectors;
  constexpr int packs() const { return lanes * vectors; }
  friend constexpr bool operator==(RowLayout const&, RowLayout const&) = default;
};

// What of a chain decides how its rows lie.
struct RowKind {
  bool several_reductions = false;
  int input_chunks = 0;    // ChainTypes::input_chunks
  int pack_registers = 4;  // of a pack of values: 4; 8 where the narrowest elements have 16 bits, 16 if in double
  bool in_double = false;
  bool computes = false;  // a stage computes at length
};

// Rows of up to 512 packs, or of 1024 that are reduced once in fp32. Two packs a lane keep enough bytes in flight at
// low register use; with several reductions fewer lanes, and so fewer barriers or none, are faster (H200, 2026-11-29),
// and in double, whose sums take most to merge, fewer still.
template <RowKind kind>
constexpr auto make_narrow_layouts() {
  if constexpr (kind.several_reductions && kind.in_double && kind.pack_registers <= 4)
    return std::array{RowLayout{8, 1},  RowLayout{8, 2},  RowLayout{8, 4},  RowLayout{16, 4},
                      RowLayout{32, 4}, RowLayout{64, 4}, RowLayout{128, 4}};
  else if constexpr (kind.several_reductions)
    return std::array{RowLayout{8, 1},  RowLayout{8, 2},  RowLayout{16, 2}, RowLayout{32, 2},
                      RowLayout{32, 4}, RowLayout{64, 4}, RowLayout{128, 4}};
  else if constexpr (kind.pack_registers <= 4 && !kind.in_double)
    return std::array{RowLayout{8, 1},  RowLayout{8, 2},   RowLayout{16, 2},  RowLayout{32, 2},
                      RowLayout{64, 2}, RowLayout{128, 2}, RowLayout{256, 2}, RowLayout{512, 2}};
  else
    return std::array{RowLayout{8, 1},  RowLayout{8, 2},   RowLayout{16, 2}, RowLayout{32, 2},
                      RowLayout{64, 2}, RowLayout{128, 2}, RowLayout{256, 2}};
}
template <RowKind kind>
constexpr auto narrow_layouts = make_narrow_layouts<kind>();
// Packs of a lane that every row in this layout has: with fewer, it would have a narrower one.
template <RowKind kind>
constexpr int full_vectors(RowLayout const& layout) {
  int packs = 0;
  for (RowLayout const narrower : narrow_layouts<kind>)
    if (narrower.packs() < layout.packs()) packs = narrower.packs();
  return packs / layout.lanes;
}
// Wider rows: as many packs a lane as its registers can keep, or hold.
template <RowKind kind>
constexpr auto make_wide_layouts() {
  if constexpr (kind.input_chunks == 1 && kind.several_reductions)
    return std::array{RowLayout{256, 4}, RowLayout{256, 8}, RowLayout{512, 8}, RowLayout{1024, 8}};
  else if constexpr (kind.input_chunks == 1 && (kind.pack_registers > 4 || kind.in_double))
    return std::array{RowLayout{256, 4}, RowLayout{512, 4}, RowLayout{512, 8}, RowLayout{1024, 8}};
  else if constexpr (kind.input_chunks == 1)
    return std::array{RowLayout{512, 4}, RowLayout{512, 8}, RowLayout{1024, 8}};
  else if constexpr (kind.pack_registers > 4 || kind.in_double || kind.several_reductions)
    return std::array{RowLayout{256, 4}, RowLayout{512, 4}, RowLayout{1024, 4}};
  else
    return std::array{RowLayout{512, 4}, RowLayout{1024, 4}};
}
template <RowKind kind>
constexpr auto wide_layouts = make_wide_layouts<kind>();
// Rows that are not held go by segments of this many packs. Merging the sums of a segment takes a lane about as long as
// five packs of logits. In double, whose packs are small, segments are longer, and smaller teams are faster where
// stages compute at length; where none do, more rows at once would only find less of theirs in the cache when they are
// read again.
template <RowKind kind>
constexpr RowLayout segment_layout = kind.in_double&& kind.computes ? RowLayout{256, 32} : RowLayout{512, 16};
// Without a reduction a team has so many lanes, with two packs or more each (FlatKernel), wherever they lie; on the
// host, a row goes by segments of so many packs.
constexpr RowLayout flat_layout{256, 2};

enum class RowPath { flat, held, wide, passes };
template <RowPath path, RowKind kind>
constexpr auto layouts_of() {
  if constexpr (path == RowPath::held)
    return narrow_layouts<kind>;
  else
    return wide_layouts<kind>;
}

struct RowPlan {
  RowPath path;
  RowLayout layout;
  int width;     // values in a pack
  int segments;  // of a row
  constexpr int segment_columns() const { return layout.packs() * width; }
};

// The plan for rows of `columns` values in packs of `width`. It decides the order of every reduction.
template <RowKind kind>
constexpr RowPlan reducing_plan(int columns, int width) {
  int const packs = std::max(1, (columns + width - 1) / width);
  for (RowLayout const layout : narrow_layouts<kind>)
    if (packs <= layout.packs()) return {RowPath::held, layout, width, 1};
  for (RowLayout const layout : wide_layouts<kind>)
    if (packs <= layout.packs()) return {RowPath::wide, layout, width, 1};
  constexpr RowLayout segment = segment_layout<kind>;
  return {RowPath::passes, segment, width, (packs + segment.packs() - 1) / segment.packs()};
}
constexpr RowPlan flat_plan(int columns, int width) {
  return {RowPath::flat, flat_layout, width,
          std::max(1, (columns + flat_layout.packs() * width - 1) / (flat_layout.packs() * width))};
}
template <class C>
constexpr RowKind row_kind{.several_reductions = ChainTypes<C>::row_stages > 1,
                           .input_chunks = ChainTypes<C>::input_chunks,
                           .pack_registers = ChainTypes<C>::pack_registers,
                           .in_double = std::is_same_v<typename ChainTypes<C>::Real, double>,
                           .computes = ChainTypes<C>::computes};
// Of a chain, whose packs are narrower where it is run value by value.
template <class C>
constexpr RowPlan row_plan(int columns, int width) {
  if constexpr (ChainTypes<C>::row_stages == 0)
    return flat_plan(columns, width);
  else
    return reducing_plan<row_kind<C>>(columns, width);
}

}  // namespace kfuse::impl

#endif
