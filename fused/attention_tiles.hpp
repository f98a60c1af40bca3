// SPDX-License-Identifier: Apache-2.0
// Attention by matrix instructions, for many queries in 16 bits.
//
// A team has a tile of rows and goes over the keys in steps (FlashAttention-2, Dao 2023). While a step is computed, the
// keys and values of the next are on their way to team memory. Scores, probabilities and the output stay in registers,
// and a lane group has rows of its own, so that the softmax needs nobody else:
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

  static constexpr int blocks = Unit::row_blocks;  // of a lane group: what is loaded of k and v serves all of them
  static constexpr int block_rows = Fragment::rows, tile_rows = lane_groups * blocks * block_rows;
  static constexpr int depth_steps = dims / Fragment::depth, key_steps = tile_keys / Fragment::columns;
  static constexpr int own_rows = Fragment::own_rows;
  static constexpr int threads = lane_groups * Fragment::lanes, registers = 255;
  static constexpr std::size_t q_bytes = tile_rows * Memory::pitch, step_bytes = tile_keys * Memory::pitch;
  static constexpr std::size_t mask_bytes = sizeof(float) * 2 * tile_keys;
  static constexpr std::size_t scratch_bytes = Memory::pitch + q_bytes + 4 * step_bytes + mask_bytes;

  AttentionTask<Element> task;

  KOKKOS_FUNCTION int tiles() const { return (task.rows() + tile_rows - 1) / tile_rows; }

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const lanes(team);
    Fragment const fragment(lanes.rank());
    Place const at = place(team.league_rank());
    Memory const q_tile{aligned(lanes.scratch(scratch_bytes), Memory::pitch)};
    auto const k_tile = [&](int turn) { return Memory{q_tile.data + (q_bytes + step_bytes * 2 * turn)}; };
    auto const v_tile = [&](int turn) { return Memory{q_tile.data + (q_bytes + step_bytes * (2 * turn + 1))}; };
    auto const shown = [&](int turn) {
      return reinterpret_cast<float*>(q_tile.data + (q_bytes + 4 * step_bytes) + sizeof(float) * tile_keys * turn);
    };
    int const group_row = lanes.rank() / Fragment::lanes * blocks * block_rows;  // this lane group's first in the tile
    Memory const q_rows{q_tile.data + group_row * Memory::pitch};
    int const end = task.end(at.sequence, at.row + at.rows - 1), seen_by_all = task.end(at.sequence, at.row);
    auto const bring = [&](int key, int turn) {
      if (task.mask.visible == nullptr)
        bring_step<Masked::no>(lanes, at, key, end, k_tile(turn), v_tile(turn), nullptr);
      else
        bring_step<Masked::yes>(lanes, at, key, end, k_tile(turn), v_tile(turn), shown(turn));
    };

    Rows rows;
    bring_queries(lanes, at, q_tile);
    bring(0, 0);
    for (int key = 0, turn = 0; key < end; key += tile_keys, turn ^= 1) {
      AsyncCopy::wait();
      lanes.barrier();  // this step's keys and values are there, and the last step's no longer needed
      if (key + tile_keys < end) bring(key + tile_keys, turn ^ 1);

      Sums scores[blocks][key_steps];
      multiply_keys(fragment, q_rows, k_tile(turn), scores);
      if (key + tile_keys > seen_by_all) hide_later(fragment, at, group_row, key, scores);
      if (task.mask.visible != nullptr) hide_masked(fragment, shown(turn), scores);
      soften(lanes, fragment, rows, scores);
      mix_values(fragment, v_tile(turn), scores, rows);
    }
    AsyncCopy::wait();
    lanes.barrier();  // nothing is on its way to q_tile, and nobody needs it
    finish(lanes, fragment, rows, q_rows);
    lanes.barrier();  // the output's tile is there
    store(lanes, at, q_tile);
  }

 private:
  enum class Masked { no, yes };
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

  // Tiles that see most keys go first, of all parts, so that the short ones fill the end.
  KOKKOS_FUNCTION Place place(int league_rank) const {
    int const parts = int(task.parts()), part = league_rank % parts;
    int const row = (tiles() - 1 - league_rank / parts) * tile_rows, left = task.rows() - row;
    return {part / task.kv_heads(), part % task.kv_heads(), row, left < tile_rows ? left : tile_rows};
  }

  // This lane's 16-byte chunks of a tile: `chunks` neighbours in every `row_step`-th row, from (first_row,
  // first_column) on.
  static constexpr int chunks_of_row = dims / Memory::chunk;
  static constexpr int chunks = chunks_of_row > threads ? chunks_of_row / threads : 1;
  static constexpr int row_step = threads > chunks_of_row ? threads / chunks_of_row : 1;
  static_assert(tile_rows % row_step == 0 && (tile_keys % row_step == 0 || row_step % tile_keys == 0));
  template <class L>
  KOKKOS_FUNCTION static int first_row(L const& lanes) {
    return lanes.rank() * chunks / chunks_of_row;
  }
  template <class L>
  KOKKOS_FUNCTION static int first_column(L const& lanes) {
    return lanes.rank() * chunks % chunks_of_row * Memory::chunk;
  }
  // f(row, column) for all of them.
  template <int height, class L, class F>
  KOKKOS_FUNCTION static void each_chunk(L const& lanes, F const& f) {
#pragma unroll
    for (int i = 0; i < height / row_step * chunks; ++i)
      f(first_row(lanes) + i / chunks * row_step, first_column(lanes) + i % chunks * Memory::chunk);
  }
  template <class L>
  KOKKOS_FUNCTION void bring_queries(L const& lanes, Place const& at, Memory const& to) const {
    each_chunk<tile_rows>(lanes, [&](int row, int column) {
      bool const exists = row < at.rows && column < task.head_dim();
      AttentionRow const r = task.row(at.kv_head, exists ? at.row + row : at.row);
      AsyncCopy::start(to.at(row, column), task.q.at(at.sequence, r.head, r.query, exists ? column : 0), exists);
    });
  }
  // Keys and values [first, first + tile_keys), with zeros for what does not exist or is hidden from all rows: it may
  // hold anything, and 0 * NaN is NaN. `shown` gets what the key mask adds to scores: nothing, or -infinity.
  template <Masked masked, class L>
  KOKKOS_FUNCTION void bring_step(L const& lanes, Place const& at, int first, int end, Memory const& k_tile,
                                  Memory const& v_tile, float* shown) const {
    int const row = first_row(lanes), column = first_column(lanes);
    if (row_step > tile_keys && row >= tile_keys) return;  // there are more lanes than chunks
    std::ptrdiff_t const k_stride = task.k.stride(2), v_stride = task.v.stride(2);
    Element const* k = task.k.at(at.sequence, at.kv_head, first) + row * k_stride + column;
    Element const* v = task.v.at(at.sequence, at.kv_head, first) + row * v_stride + column;
#pragma unroll
    for (int i = 0; i < tile_keys; i += row_step) {
      bool exists = first + row + i < end;
      if constexpr (masked == Masked::yes) {
        exists = exists && task.mask.shows(at.sequence, first + row + i);
        if (column == 0) shown[row + i] = exists ? 0 : nothing();
      }
#pragma unroll
      for (int c = 0; c < chunks * Memory::chunk; c += Memory::chunk) {
        AsyncCopy::start(k_tile.at(row + i, column + c), k + c, exists && column + c < task.head_dim());
        AsyncCopy::start(v_tile.at(row + i, column + c), v + c, exists && column + c < task.head_dim());
      }
      k += row_step * k_stride;  // one address at a time: registers are scarce
      v += row_step * v_stride;
    }
  }

  KOKKOS_FUNCTION static void multiply_keys(Fragment const& fragment, Memory const& q_rows, Memory const& k_tile,
                                            Sums (&scores)[blocks][key_steps]) {
#pragma unroll
    for (int d = 0; d < depth_steps; ++d) {
      A q[blocks];
#pragma unroll
      for (int b = 0; b < blocks; ++b) q[b] = fragment.load_a(q_rows, b * block_rows, d * Fragment::depth);
#pragma unroll
      for (int k = 0; k < key_steps; ++k) {
        B const keys = fragment.load_b_transposed(k_tile, k * Fragment::columns, d * Fragment::depth);
#pragma unroll
        for (int b = 0; b < blocks; ++b) fragment.multiply_add(scores[b][k], q[b], keys);
      }
    }
  }

  // scores = -infinity for keys that a row does not see: later ones, and those that the key mask hides.
  KOKKOS_FUNCTION void hide_later(Fragment const& fragment, Place const& at, int group_row, int first_key,
                                  Sums (&scores)[blocks][key_steps]) const {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      int end[own_rows];
#pragma unroll
      for (int i = 0; i < own_rows; ++i)
        end[i] = task.end(at.sequence, at.row + group_row + b * block_rows + fragment.own_row(i)) - first_key;
#pragma unroll
      for (int k = 0; k < key_steps; ++k)
        fragment.for_each(scores[b][k], [&](Entry entry, float& score) {
          if (k * Fragment::columns + entry.column >= end[entry.own]) score = nothing();
        });
    }
  }
  KOKKOS_FUNCTION static void hide_masked(Fragment const& fragment, float const* shown,
                                          Sums (&scores)[blocks][key_steps]) {
#pragma unroll
    for (int k = 0; k < key_steps; ++k)
#pragma unroll
      for (int b = 0; b < blocks; ++b)
        fragment.for_each(scores[b][k],
                          [&](Entry at, float& score) { score += shown[k * Fragment::columns + at.column]; });
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
                          [&](Entry at, float& score) { high[at.own] = Kokkos::fmax(high[at.own], score); });
      fragment.reduce_rows(lanes, high, [](float x, float y) { return Kokkos::fmax(x, y); });
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
  KOKKOS_FUNCTION static void finish(L const& lanes, Fragment const& fragment, Rows& rows, Memory const& to) {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      fragment.reduce_rows(lanes, rows.sum[b], [](float x, float y) { return x + y; });
#pragma unroll
      for (int d = 0; d < depth_steps; ++d) {
        fragment.for_each(rows.mixed[b][d], [&](Entry at, float& value) {
          float const sum = rows.sum[b][at.own];
          value = sum == 0 ? 0 : backend::divide(value, sum);
        });
        fragment.store(rows.mixed[b][d], to, b * block_rows, d * Fragment::columns);
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
      AttentionRow const r = task.row(at.kv_head, at.row + row);
      auto* const to = task.out.at(at.sequence, r.head, r.query, column);
      *reinterpret_cast<Chunk*>(to) = *reinterpret_cast<Chunk const*>(from.at(row, column));
    });
  }
};

// head_dim: at most 128. Rows of q, k, v and out lie on 16-byte boundaries and have whole chunks of 16 bytes.
template <class Unit, class Space, class Element>
void launch_attention_tiles(Space const& space, std::string const& label, AttentionTask<Element> const& task) {
  auto const run = [&](auto kernel) {
    impl::launch(space, label, kernel.tiles() * task.parts(), kernel.scratch_bytes, kernel);
  };
  if (task.head_dim() <= 64)
    run(AttentionTilesKernel<Unit, Element, 64, Unit::lane_groups, Unit::tile_keys>{task});
  else
    run(AttentionTilesKernel<Unit, Element, 128, Unit::lane_groups, Unit::tile_keys>{task});
}

}  // namespace kfuse::impl

#endif
