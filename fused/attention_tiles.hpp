// SPDX-License-Identifier: Apache-2.0
// Attention by matrix instructions, for many queries in 16 bits.
//
// A team has a tile of rows and goes over the keys in steps (FlashAttention-2, Dao 2023). While a step is computed, the
// keys and values of the next are on their way to team memory. Scores, probabilities and the output stay in registers,
// and a lane group (a warp) has rows of its own, so that the softmax needs nobody else:
//
//   scores = q k^T                       float
//   high'  = max(high, scores)           the online softmax, in powers of two
//   p      = 2^(scale (scores - high'))
//   mixed  = 2^(scale (high - high')) mixed + p v,  p rounded to Element
//
// Rows of all heads that share a kv head are packed into one tile, so keys are brought once for all of them. The bits
// of a row depend on nothing but its query and its keys: steps begin at key 0, and what is hidden adds zeros.
//
// 4 kernels: bf16 and fp16, heads padded to 64 and 128.
#ifndef KFUSE_FUSED_ATTENTION_TILES_HPP
#define KFUSE_FUSED_ATTENTION_TILES_HPP

#include <kfuse/core/fragment.hpp>
#include <kfuse/core/launch.hpp>
#include <kfuse/fused/attention_task.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace kfuse::impl {

template <class Unit, class Element, int dims, int lane_groups, int tile_keys>
struct AttentionTilesKernel {
  using Fragment = typename Unit::template Fragment<Element>;
  using AsyncCopy = typename Unit::AsyncCopy;
  using Memory = Tile<Element, dims>;
  using A = typename Fragment::A;
  using B = typename Fragment::B;
  using Sums = typename Fragment::Sums;
  static_assert(IsFragment<Fragment>);

  static constexpr int blocks = 2;  // of rows in a lane group: what is loaded of k and v serves all of them
  static constexpr int block_rows = Fragment::rows, tile_rows = lane_groups * blocks * block_rows;
  static constexpr int depth_steps = dims / Fragment::depth, key_steps = tile_keys / Fragment::columns;
  static constexpr int own_rows = Fragment::own_rows;
  static constexpr int threads = lane_groups * Fragment::lanes, registers = 255;
  static constexpr std::size_t q_bytes = tile_rows * Memory::pitch, step_bytes = tile_keys * Memory::pitch;
  static constexpr std::size_t scratch_bytes = Memory::pitch + q_bytes + 4 * step_bytes;

  AttentionTask<Element> task;

  KOKKOS_FUNCTION int tiles() const { return (task.rows() + tile_rows - 1) / tile_rows; }

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const lanes(team);
    Fragment const fragment(lanes.rank());
    Place const at = place(team.league_rank());
    Memory const q_tile{aligned(lanes.scratch(scratch_bytes))};
    auto const k_tile = [&](int turn) { return Memory{q_tile.data + (q_bytes + 2 * turn * step_bytes)}; };
    auto const v_tile = [&](int turn) { return Memory{q_tile.data + (q_bytes + (2 * turn + 1) * step_bytes)}; };
    int const first_row = lanes.rank() / Fragment::lanes * blocks * block_rows;  // of this lane group in the tile
    int const end = task.end(at.sequence, at.row + at.rows - 1), seen_by_all = task.end(at.sequence, at.row);
    Rows rows;
    bring_queries(lanes, at, q_tile);
    bring_step(lanes, at, 0, end, k_tile(0), v_tile(0));
    for (int key = 0, turn = 0; key < end; key += tile_keys, turn ^= 1) {
      AsyncCopy::wait();
      lanes.barrier();  // this step's keys and values are there, and the last step's no longer needed
      if (key + tile_keys < end) bring_step(lanes, at, key + tile_keys, end, k_tile(turn ^ 1), v_tile(turn ^ 1));

      Sums scores[blocks][key_steps];
      multiply_keys(fragment, q_tile, first_row, k_tile(turn), scores);
      if (key + tile_keys > seen_by_all) hide_later(fragment, at, first_row, key, scores);
      if (task.mask.visible != nullptr)
        hide(fragment, key, scores, [&](int, Entry, int k) { return k >= end || !task.mask.shows(at.sequence, k); });
      soften(lanes, fragment, rows, scores);
      mix_values(fragment, v_tile(turn), scores, rows);
    }
    AsyncCopy::wait();
    lanes.barrier();  // nothing is on its way to q_tile, and nobody needs it
    finish(lanes, fragment, rows, first_row, q_tile);
    lanes.barrier();  // the output's tile is there
    store(lanes, at, q_tile);
  }

 private:
  struct Place {
    int sequence, kv_head, row, rows;
  };
  // What a lane knows of its rows.
  struct Rows {
    float high[blocks][own_rows], sum[blocks][own_rows] = {};
    Sums mixed[blocks][depth_steps];
    KOKKOS_FUNCTION Rows() {
#pragma unroll
      for (int i = 0; i < blocks * own_rows; ++i) high[i / own_rows][i % own_rows] = nothing();
    }
  };
  KOKKOS_FUNCTION static constexpr float nothing() {
    return -Kokkos::Experimental::infinity_v<float>;
  }
  KOKKOS_FUNCTION static std::byte* aligned(void* memory) {
    auto const address = reinterpret_cast<std::uintptr_t>(memory);
    return static_cast<std::byte*>(memory) + (0 - address) % Memory::pitch;
  }

  // Tiles that see most keys go first, of all parts, so that the short ones fill the end.
  KOKKOS_FUNCTION Place place(int league_rank) const {
    int const parts = int(task.parts()), part = league_rank % parts;
    int const row = (tiles() - 1 - league_rank / parts) * tile_rows, left = task.rows() - row;
    return {part / task.kv_heads(), part % task.kv_heads(), row, left < tile_rows ? left : tile_rows};
  }

  // f(row, column) for this lane's 16-byte chunks of `tile_height` rows.
  template <int tile_height, class L, class F>
  KOKKOS_FUNCTION static void each_chunk(L const& lanes, F const& f) {
    constexpr int chunks = dims / Memory::chunk;
#pragma unroll 1
    for (int i = 0; i < tile_height * chunks / threads; ++i) {
      int const number = lanes.rank() + i * threads;
      f(number / chunks, number % chunks * Memory::chunk);
    }
  }
  template <class L>
  KOKKOS_FUNCTION void bring_queries(L const& lanes, Place const& at, Memory const& to) const {
    each_chunk<tile_rows>(lanes, [&](int row, int column) {
      bool const exists = row < at.rows && column < task.head_dim();
      AsyncCopy::start(to.at(row, column),
                       task.query(at.sequence, at.kv_head, at.row + (exists ? row : 0)) + (exists ? column : 0),
                       exists);
    });
  }
  // Keys and values [first, first + tile_keys), with zeros for what does not exist or is hidden from all rows: it may
  // hold anything, and 0 * NaN is NaN.
  template <class L>
  KOKKOS_FUNCTION void bring_step(L const& lanes, Place const& at, int first, int end, Memory const& k_tile,
                                  Memory const& v_tile) const {
    Element const* const k = task.k.at(at.sequence, at.kv_head);
    Element const* const v = task.v.at(at.sequence, at.kv_head);
    each_chunk<tile_keys>(lanes, [&](int row, int column) {
      int const key = first + row;
      bool const exists = key < end && column < task.head_dim() && task.mask.shows(at.sequence, key);
      std::ptrdiff_t const from = exists ? key : 0;
      AsyncCopy::start(k_tile.at(row, column), k + from * task.k.stride(2) + (exists ? column : 0), exists);
      AsyncCopy::start(v_tile.at(row, column), v + from * task.v.stride(2) + (exists ? column : 0), exists);
    });
  }

  KOKKOS_FUNCTION static void multiply_keys(Fragment const& fragment, Memory const& q_tile, int row,
                                            Memory const& k_tile, Sums (&scores)[blocks][key_steps]) {
#pragma unroll
    for (int d = 0; d < depth_steps; ++d) {
      A q[blocks];
#pragma unroll
      for (int b = 0; b < blocks; ++b) q[b] = fragment.load_a(q_tile, row + b * block_rows, d * Fragment::depth);
#pragma unroll
      for (int k = 0; k < key_steps; ++k) {
        B const keys = fragment.load_b_transposed(k_tile, k * Fragment::columns, d * Fragment::depth);
#pragma unroll
        for (int b = 0; b < blocks; ++b) fragment.multiply_add(scores[b][k], q[b], keys);
      }
    }
  }

  // scores = -infinity where hidden(block, entry, key): what a row does not see.
  template <class Hidden>
  KOKKOS_FUNCTION static void hide(Fragment const& fragment, int first_key, Sums (&scores)[blocks][key_steps],
                                   Hidden const& hidden) {
#pragma unroll
    for (int b = 0; b < blocks; ++b)
#pragma unroll
      for (int k = 0; k < key_steps; ++k)
        fragment.for_each(scores[b][k], [&](Entry at, float& score) {
          if (hidden(b, at, first_key + k * Fragment::columns + at.column)) score = nothing();
        });
  }
  KOKKOS_FUNCTION void hide_later(Fragment const& fragment, Place const& at, int first_row, int first_key,
                                  Sums (&scores)[blocks][key_steps]) const {
    int end[blocks][own_rows];
#pragma unroll
    for (int i = 0; i < blocks * own_rows; ++i)
      end[i / own_rows][i % own_rows] =
          task.end(at.sequence, at.row + first_row + i / own_rows * block_rows + fragment.own_row(i % own_rows));
    hide(fragment, first_key, scores, [&](int b, Entry entry, int key) { return key >= end[b][entry.own]; });
  }

  // scores = 2^(scale (scores - high)), where `high` is the highest score yet; what was summed before is brought in
  // line.
  template <class L>
  KOKKOS_FUNCTION void soften(L const& lanes, Fragment const& fragment, Rows& rows,
                              Sums (&scores)[blocks][key_steps]) const {
    float const scale = float(task.scale);
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      float high[own_rows], shift[own_rows], keep[own_rows];
#pragma unroll
      for (int i = 0; i < own_rows; ++i) high[i] = rows.high[b][i];
#pragma unroll
      for (int k = 0; k < key_steps; ++k)
        fragment.for_each(scores[b][k],
                          [&](Entry at, float& score) { high[at.own] = Kokkos::max(high[at.own], score); });
      fragment.reduce_rows(lanes, high, [](float x, float y) { return Kokkos::max(x, y); });
#pragma unroll
      for (int i = 0; i < own_rows; ++i) {
        shift[i] = high[i] == nothing() ? 0 : high[i] * scale;
        keep[i] = backend::exp2(rows.high[b][i] * scale - shift[i]);
        rows.high[b][i] = high[i];
        rows.sum[b][i] *= keep[i];
      }
#pragma unroll
      for (int k = 0; k < key_steps; ++k)
        fragment.for_each(scores[b][k], [&](Entry at, float& score) {
          score = backend::exp2(score * scale - shift[at.own]);
          rows.sum[b][at.own] += score;
        });
#pragma unroll
      for (int d = 0; d < depth_steps; ++d)
        fragment.for_each(rows.mixed[b][d], [&](Entry at, float& value) { value *= keep[at.own]; });
    }
  }

  KOKKOS_FUNCTION static void mix_values(Fragment const& fragment, Memory const& v_tile,
                                         Sums const (&scores)[blocks][key_steps], Rows& rows) {
#pragma unroll
    for (int k = 0; k < key_steps; ++k) {
      A p[blocks];
#pragma unroll
      for (int b = 0; b < blocks; ++b) p[b] = fragment.as_operand(scores[b][k]);
#pragma unroll
      for (int d = 0; d < depth_steps; ++d) {
        B const values = fragment.load_b(v_tile, k * Fragment::depth, d * Fragment::columns);
#pragma unroll
        for (int b = 0; b < blocks; ++b) fragment.multiply_add(rows.mixed[b][d], p[b], values);
      }
    }
  }

  template <class L>
  KOKKOS_FUNCTION static void finish(L const& lanes, Fragment const& fragment, Rows& rows, int first_row,
                                     Memory const& to) {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      fragment.reduce_rows(lanes, rows.sum[b], [](float x, float y) { return x + y; });
#pragma unroll
      for (int d = 0; d < depth_steps; ++d) {
        fragment.for_each(rows.mixed[b][d], [&](Entry at, float& value) {
          float const sum = rows.sum[b][at.own];
          value = sum == 0 ? 0 : value / sum;
        });
        fragment.store(rows.mixed[b][d], to, first_row + b * block_rows, d * Fragment::columns);
      }
    }
  }
  template <class L>
  KOKKOS_FUNCTION void store(L const& lanes, Place const& at, Memory const& from) const {
    struct alignas(16) Chunk {
      Element value[Memory::chunk];
    };
    each_chunk<tile_rows>(lanes, [&](int row, int column) {
      if (row >= at.rows || column >= task.head_dim()) return;
      auto* const to = task.output(at.sequence, at.kv_head, at.row + row) + column;
      *reinterpret_cast<Chunk*>(to) = *reinterpret_cast<Chunk const*>(from.at(row, column));
    });
  }
};

// head_dim: at most 128. Rows of q, k, v and out lie on 16-byte boundaries and have whole chunks of 16 bytes.
template <class Unit, class Space, class Element>
void launch_attention_tiles(Space const& space, std::string const& label, AttentionTask<Element> const& task) {
  constexpr int lane_groups = Unit::is_hardware ? 4 : 1, tile_keys = Unit::is_hardware ? 64 : 16;
  auto const run = [&](auto kernel) {
    impl::launch(space, label, kernel.tiles() * task.parts(), kernel.scratch_bytes, kernel);
  };
  if (task.head_dim() <= 64)
    run(AttentionTilesKernel<Unit, Element, 64, lane_groups, tile_keys>{task});
  else
    run(AttentionTilesKernel<Unit, Element, 128, lane_groups, tile_keys>{task});
}

}  // namespace kfuse::impl

#endif
