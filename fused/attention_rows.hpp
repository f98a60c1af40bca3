// SPDX-License-Identifier: Apache-2.0
// Attention in plain arithmetic: few queries over many keys (decode), any element type, any head, any alignment.
//
// A team has a few rows of one kv head. A key lies on a group of lanes, in packs of 16 bytes; the groups of the team
// take keys in turns, several at once, each with its own online softmax. Rows that share the kv head share what is
// read.
//
// Keys are cut into segments of a fixed length. Within one, what the lane groups found is merged in the order of their
// number; segments are merged in theirs. So it makes no difference whether one team takes all segments of a row, or,
// where rows are few and a workspace is given, each segment has a team of its own and a second launch merges them. The
// bits of a row depend on nothing but its query and its keys.
#ifndef KFUSE_FUSED_ATTENTION_ROWS_HPP
#define KFUSE_FUSED_ATTENTION_ROWS_HPP

#include <kfuse/core/launch.hpp>
#include <kfuse/core/values.hpp>
#include <kfuse/fused/attention_segments.hpp>
#include <kfuse/fused/attention_task.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace kfuse::impl {

template <class Element, Access access, int threads_>
struct AttentionRowsKernel {
  using Real = kfuse::Real<Element>;
  static constexpr int threads = threads_, registers = 255;
  static constexpr int rows = sizeof(Real) == 8 ? 2 : 4;  // of a team
  static constexpr int width = 16 / int(sizeof(Element)), keys_at_once = 4;
  static constexpr int own_columns = (max_head_dim + threads - 1) / threads;  // of the output, each lane's
  using X = Values<Real, width, access>;
  using Row = Mixture<Real, own_columns>;

  AttentionTask<Element> task;
  SegmentMixtures<Real> mixtures;

  KOKKOS_FUNCTION std::ptrdiff_t row_blocks() const { return (task.rows() + rows - 1) / rows; }
  KOKKOS_FUNCTION static std::size_t scratch_bytes_of(int head_dim, int lane_width) {
    return sizeof(Real) * (threads / lane_width) * rows * (head_dim + 2);
  }

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    using Lanes = LanesOf<Team>;
    constexpr int packs = max_head_dim / width / Lanes::width > 1 ? max_head_dim / width / Lanes::width : 1;
    Lanes const lanes(team);
    Place const at = place(team.league_rank());
    int const end = task.end(at.sequence, at.row + at.rows - 1), segments = attention_segments(end);
    int const first = mixtures.data ? at.segment : 0, last = mixtures.data ? at.segment + 1 : segments;
    if (mixtures.data && at.segment >= segments) return;
    auto* const scratch = static_cast<Real*>(lanes.scratch(scratch_bytes_of(task.head_dim(), Lanes::width)));

    X q[rows][packs];
    read_queries(lanes, at, q);
    Row total[rows];
    for (int s = first; s < last; ++s) {
      Part<packs> part[rows];
      int const segment_end = s == segments - 1 ? end : (s + 1) * attention_segment;
      mix_keys(lanes, at, s * attention_segment, segment_end, q, part);
      if (s > first) lanes.barrier();  // scratch has been read
      publish(lanes, part, scratch);
      lanes.barrier();  // the parts of all lane groups are there
      merge_parts(lanes, scratch, total);
    }
    store(lanes, at, total);
  }

 private:
  struct Place {
    int sequence, kv_head, row, rows, segment;
  };
  // What a lane group has of one row: for this lane's packs of columns.
  template <int packs>
  struct Part {
    Real high = nothing(), sum = 0;
    Real value[packs][width] = {};
  };
  KOKKOS_FUNCTION static constexpr Real nothing() { return -Kokkos::Experimental::infinity_v<Real>; }

  // Rows that see most keys go first, and the segments of a row side by side.
  KOKKOS_FUNCTION Place place(int league_rank) const {
    int const segment = league_rank % mixtures.segments, team = league_rank / mixtures.segments;
    int const parts = int(task.parts()), part = team % parts;
    int const row = int(row_blocks() - 1 - team / parts) * rows, left = task.rows() - row;
    return {part / task.kv_heads(), part % task.kv_heads(), row, left < rows ? left : rows, segment};
  }
  // Lanes that a key lies on: a power of two, as few as hold it.
  template <class Lanes>
  KOKKOS_FUNCTION int lanes_of_key() const {
    int n = 1;
    while (n < Lanes::width && n * width < task.head_dim()) n *= 2;
    return n;
  }

  // x = the values from `column` on, with zeros beyond the head.
  KOKKOS_FUNCTION void read_pack(Element const* row, int column, X& x) const {
    if (access == Access::wide || column + width <= task.head_dim()) {
      read(row + column, x);
    } else {
      for (int i = 0; i < width; ++i) x[i] = column + i < task.head_dim() ? Real(to_real(row[column + i])) : Real(0);
    }
  }
  // visit(pack, column) for this lane's packs of a head.
  template <int packs, class F>
  KOKKOS_FUNCTION void each_pack(int lane, int key_lanes, F const& visit) const {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      int const column = (lane + p * key_lanes) * width;
      if (column < task.head_dim()) visit(p, column);
    }
  }

  template <class Lanes, int packs>
  KOKKOS_FUNCTION void read_queries(Lanes const& lanes, Place const& at, X (&q)[rows][packs]) const {
    int const key_lanes = lanes_of_key<Lanes>(), lane = lanes.rank() % key_lanes;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      Element const* const from = task.query(at.sequence, at.kv_head, at.row + (r < at.rows ? r : 0));
      each_pack<packs>(lane, key_lanes, [&](int p, int column) {
        read_pack(from, column, q[r][p]);
        for (auto& v : q[r][p]) v *= Real(task.scale);
      });
    }
  }

  // What the keys [first, last) of this lane's group give to the rows.
  template <class Lanes, int packs>
  KOKKOS_FUNCTION void mix_keys(Lanes const& lanes, Place const& at, int first, int last, X const (&q)[rows][packs],
                                Part<packs> (&part)[rows]) const {
    int const key_lanes = lanes_of_key<Lanes>(), lane = lanes.rank() % key_lanes;
    int const group = lanes.rank() / key_lanes, groups = threads / key_lanes;
    Element const* const k = task.k.at(at.sequence, at.kv_head);
    Element const* const v = task.v.at(at.sequence, at.kv_head);
    int end[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) end[r] = r < at.rows ? task.end(at.sequence, at.row + r) : 0;

    for (int begin = first; begin < last; begin += keys_at_once * groups) {  // all lanes go as often: they exchange
      X values[keys_at_once][packs];
      Real score[rows][keys_at_once] = {};
#pragma unroll
      for (int u = 0; u < keys_at_once; ++u) {
        int const key = begin + u * groups + group;
        bool const exists = key < last && task.mask.shows(at.sequence, key);
        each_pack<packs>(lane, key_lanes, [&](int p, int column) {
          X keys{};
          if (exists) {
            read_pack(k + key * task.k.stride(2), column, keys);
            read_pack(v + key * task.v.stride(2), column, values[u][p]);
          } else {
            values[u][p] = {};  // what is not there may hold anything, and 0 * NaN is NaN
          }
#pragma unroll
          for (int r = 0; r < rows; ++r) score[r][u] += dot<Lanes>(q[r][p], keys);
        });
#pragma unroll
        for (int r = 0; r < rows; ++r)
          if (!exists) score[r][u] = nothing();
      }
      sum_lanes(lanes, key_lanes, score);
#pragma unroll
      for (int r = 0; r < rows; ++r)
        mix(
            lane, key_lanes, score[r], [&](int u) { return begin + u * groups + group < end[r]; }, values, part[r]);
    }
  }

  // On one lane, as many sums as vector instructions hold; where lanes share a key, one is enough.
  template <class Lanes>
  KOKKOS_FUNCTION static Real dot(X const& a, X const& b) {
    constexpr int sums = Lanes::width == 1 ? width : 1;
    Real sum[sums] = {};
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i % sums] += a[i] * b[i];
    for (int i = 1; i < sums; ++i) sum[0] += sum[i];
    return sum[0];
  }
  template <class Lanes>
  KOKKOS_FUNCTION static void sum_lanes(Lanes const& lanes, int key_lanes, Real (&score)[rows][keys_at_once]) {
#pragma unroll
    for (int step = Lanes::width / 2; step > 0; step /= 2)
      if (step < key_lanes)
#pragma unroll
        for (int i = 0; i < rows * keys_at_once; ++i) {
          Real& own = score[i / keys_at_once][i % keys_at_once];
          own += lanes.shuffle_xor(own, step);
        }
  }
  // The online softmax: some more keys of one row.
  template <class Sees, int packs>
  KOKKOS_FUNCTION void mix(int lane, int key_lanes, Real (&score)[keys_at_once], Sees const& sees,
                           X const (&values)[keys_at_once][packs], Part<packs>& part) const {
    Real high = part.high;
#pragma unroll
    for (int u = 0; u < keys_at_once; ++u) {
      if (!sees(u)) score[u] = nothing();
      high = Kokkos::max(high, score[u]);
    }
    Real const shift = high == nothing() ? Real(0) : high, keep = backend::exp2(part.high - shift);
    part.high = high;
    part.sum *= keep;
#pragma unroll
    for (int u = 0; u < keys_at_once; ++u) {
      score[u] = backend::exp2(score[u] - shift);
      part.sum += score[u];
    }
    each_pack<packs>(lane, key_lanes, [&](int p, int) {
#pragma unroll
      for (int i = 0; i < width; ++i) {
        Real value = part.value[p][i] * keep;
#pragma unroll
        for (int u = 0; u < keys_at_once; ++u) value += score[u] * values[u][p][i];
        part.value[p][i] = value;
      }
    });
  }

  // Merges the lane groups that exchange values, and writes one part for all of them: high, sum, columns.
  template <class Lanes, int packs>
  KOKKOS_FUNCTION void publish(Lanes const& lanes, Part<packs> (&part)[rows], Real* scratch) const {
    int const key_lanes = lanes_of_key<Lanes>(), lane = lanes.rank() % Lanes::width;
    Real* const own = scratch + (lanes.rank() / Lanes::width) * rows * (task.head_dim() + 2);
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      Real high = part[r].high;
#pragma unroll
      for (int step = Lanes::width / 2; step > 0; step /= 2)
        if (step >= key_lanes) high = Kokkos::max(high, lanes.shuffle_xor(high, step));
      Real const factor = backend::exp2(part[r].high - (high == nothing() ? Real(0) : high));
      auto const all = [&](Real x) {
        x *= factor;
#pragma unroll
        for (int step = Lanes::width / 2; step > 0; step /= 2)
          if (step >= key_lanes) x += lanes.shuffle_xor(x, step);
        return x;
      };
      Real* const to = own + r * (task.head_dim() + 2);
      Real const sum = all(part[r].sum);
      if (lane == 0) {
        to[0] = high;
        to[1] = sum;
      }
#pragma unroll
      for (int p = 0; p < packs; ++p)
#pragma unroll
        for (int i = 0; i < width; ++i) {
          Real const value = all(part[r].value[p][i]);
          int const column = (lane + p * key_lanes) * width + i;
          if (lane < key_lanes && column < task.head_dim()) to[2 + column] = value;
        }
    }
  }

  // total = total and the team's parts of one more segment, which are merged among themselves first.
  template <class Lanes>
  KOKKOS_FUNCTION void merge_parts(Lanes const& lanes, Real const* scratch, Row (&total)[rows]) const {
    int const stride = task.head_dim() + 2;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      Row segment;
      for (int g = 0; g < threads / Lanes::width; ++g) {
        Real const* const part = scratch + (g * rows + r) * stride;
        segment.merge(part[0], part[1], [&](int i) { return own(part + 2, lanes.rank() + i * threads); });
      }
      total[r].merge(segment.high, segment.sum, [&](int i) { return segment.value[i]; });
    }
  }
  KOKKOS_FUNCTION Real own(Real const* values, int column) const {
    return column < task.head_dim() ? values[column] : Real(0);
  }

  template <class Lanes>
  KOKKOS_FUNCTION void store(Lanes const& lanes, Place const& at, Row const (&total)[rows]) const {
    std::ptrdiff_t const part = std::ptrdiff_t(at.sequence) * task.kv_heads() + at.kv_head;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      if (r >= at.rows) break;
      Real* const mixture = mixtures.data ? mixtures.at(part * task.rows() + at.row + r, at.segment) : nullptr;
      Element* const out = task.output(at.sequence, at.kv_head, at.row + r);
      if (mixture && lanes.rank() == 0) {
        mixture[0] = total[r].high;
        mixture[1] = total[r].sum;
      }
#pragma unroll
      for (int i = 0; i < own_columns; ++i) {
        int const column = lanes.rank() + i * threads;
        if (column >= task.head_dim()) break;
        if (mixture)
          mixture[2 + column] = total[r].value[i];
        else
          out[column] = from_real<Element>(total[r].mean(i));
      }
    }
  }
};

template <Access access, class Space, class Element>
void launch_attention_rows(Space const& space, std::string const& label, AttentionTask<Element> const& task,
                           SegmentMixtures<Real<Element>> const& mixtures) {
  constexpr bool on_host = Backend<Space>::is_host;
  using Rows = AttentionRowsKernel<Element, access, on_host ? 1 : 256>;
  Rows const kernel{task, mixtures};
  impl::launch(space, label, kernel.row_blocks() * task.parts() * mixtures.segments,
               Rows::scratch_bytes_of(task.head_dim(), Backend<Space>::lanes), kernel);
  if (mixtures.data)
    impl::launch(space, label + "::merge", task.rows() * task.parts(), 0, AttentionMergeKernel < Element,
                 on_host ? 1 : 128 > {task, mixtures});
}

}  // namespace kfuse::impl

#endif
