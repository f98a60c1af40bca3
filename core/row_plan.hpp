// SPDX-License-Identifier: Apache-2.0
// How rows are spread over lanes, and with it the order of every reduction: a function of the row's length and the
// width of its packs alone.
#ifndef KFUSE_CORE_ROW_PLAN_HPP
#define KFUSE_CORE_ROW_PLAN_HPP

#include <kfuse/core/chain.hpp>

#include <algorithm>
#include <array>
#include <cstdint>

namespace kfuse::impl {

// How a row lies on its lanes: `lanes` lanes hold `vectors` packs each at a time.
struct RowLayout {
  int lanes, vectors;
  constexpr int packs() const { return lanes * vectors; }
  friend constexpr bool operator==(RowLayout const&, RowLayout const&) = default;
};

// Rows of up to 512 packs. Two packs a lane keep enough bytes in flight at low register use; with several reductions
// fewer lanes, and so fewer barriers or none, are faster (H200, 2026-11-29).
template <bool several_reductions>
constexpr std::array narrow_layouts{RowLayout{8, 1},  RowLayout{8, 2},   RowLayout{16, 2}, RowLayout{32, 2},
                                    RowLayout{64, 2}, RowLayout{128, 2}, RowLayout{256, 2}};
template <>
inline constexpr std::array narrow_layouts<true>{RowLayout{8, 1},  RowLayout{8, 2},  RowLayout{16, 2}, RowLayout{32, 2},
                                                 RowLayout{32, 4}, RowLayout{64, 4}, RowLayout{128, 4}};
// Packs of a lane that every row in this layout has: with fewer, it would have a narrower one.
template <bool several_reductions>
constexpr int full_vectors(RowLayout const& layout) {
  int packs = 0;
  for (RowLayout const narrower : narrow_layouts<several_reductions>)
    if (narrower.packs() < layout.packs()) packs = narrower.packs();
  return packs / layout.lanes;
}
// Wider rows, by ChainTypes::input_chunks: as many packs a lane as its registers can keep.
template <bool several_reductions, int input_chunks>
constexpr std::array wide_layouts{RowLayout{256, 4}, RowLayout{512, 4}, RowLayout{1024, 4}};
template <>
inline constexpr std::array wide_layouts<false, 1>{RowLayout{256, 4}, RowLayout{512, 4}, RowLayout{512, 8},
                                                   RowLayout{1024, 8}};
template <>
inline constexpr std::array wide_layouts<true, 1>{RowLayout{256, 4}, RowLayout{256, 8}, RowLayout{512, 8},
                                                  RowLayout{1024, 8}};
// Rows that are not held go by segments of this many packs. Merging the sums of a segment takes a lane about as long as
// five packs of logits.
constexpr RowLayout segment_layout{512, 16};
// Without a reduction a team has so many lanes, with two packs or more each (FlatKernel), wherever they lie; on the
// host, a row goes by segments of so many packs.
constexpr RowLayout flat_layout{256, 2};

enum class RowPath { flat, held, wide, passes };

struct RowPlan {
  RowPath path;
  RowLayout layout;
  int width;     // values in a pack
  int segments;  // of a row
  constexpr int segment_columns() const { return layout.packs() * width; }
};

// The plan for rows of `columns` values in packs of `width`. It decides the order of every reduction.
template <bool several_reductions, int input_chunks>
constexpr RowPlan reducing_plan(int columns, int width) {
  int const packs = std::max(1, (columns + width - 1) / width);
  for (RowLayout const layout : narrow_layouts<several_reductions>)
    if (packs <= layout.packs()) return {RowPath::held, layout, width, 1};
  for (RowLayout const layout : wide_layouts<several_reductions, input_chunks>)
    if (packs <= layout.packs()) return {RowPath::wide, layout, width, 1};
  return {RowPath::passes, segment_layout, width, (packs + segment_layout.packs() - 1) / segment_layout.packs()};
}
constexpr RowPlan flat_plan(int columns, int width) {
  return {RowPath::flat, flat_layout, width,
          std::max(1, (columns + flat_layout.packs() * width - 1) / (flat_layout.packs() * width))};
}
// Of a chain, whose packs are narrower where it is run value by value.
template <class C>
constexpr RowPlan row_plan(int columns, int width) {
  using Types = ChainTypes<C>;
  if constexpr (Types::row_stages == 0)
    return flat_plan(columns, width);
  else
    return reducing_plan<(Types::row_stages > 1), Types::input_chunks>(columns, width);
}

}  // namespace kfuse::impl

#endif
