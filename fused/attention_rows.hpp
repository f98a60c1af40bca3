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
#include <cstdint>
#include <string>

namespace kfuse::impl {

template <class Element, Access access, int threads_>
struct AttentionRowsKernel {
  using Real = kfuse::Real<Element>;
  static constexpr int threads = threads_, registers = 255;
  static constexpr bool alone = threads == 1;                       // on the host; registers bound what lanes hold
  static constexpr int rows = sizeof(Real) == 8 && !alone ? 2 : 4;  // of a team
  static constexpr int keys_at_once = sizeof(Real) == 8 && !alone ? 2 : 4;
  static constexpr int width = 16 / int(sizeof(Element));
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
    AttentionMask const mask = task.mask_of(at.sequence);
    int const end = mask.end(at.sequence, (at.row + at.rows - 1) / task.group), segments = attention_segments(end);
    int const first = mixtures.data ? at.segment : 0, last = mixtures.data ? at.segment + 1 : segments;
    if (mixtures.data && at.segment >= segments) return;

    auto* const scratch = static_cast<Real*>(lanes.scratch(scratch_bytes_of(task.head_dim(), Lanes::width)));
    KeyGroup const group = key_group<Lanes>(lanes.rank());
    X q[rows][packs];
    read_queries(at, group, q);
    Row total[rows];
    for (int s = first; s < last; ++s) {
      Part<packs> part[rows];
      int const segment_end = s == segments - 1 ? end : (s + 1) * attention_segment;
      mix_keys(lanes, at, mask, group, s * attention_segment, segment_end, q, part);
      if (s > first) lanes.barrier();  // scratch has been read
      publish(lanes, group, part, scratch);
      lanes.barrier();  // the parts of all lane groups are there
      merge_parts(lanes, scratch, total);
    }
    store(lanes, at, total);
  }

 private:
  struct Place {
    int sequence, kv_head, row, rows, segment;
  };
  // The lanes that a key lies on, a power of two and as few as hold it: this lane among them, and which of the team's
  // `count` groups they are.
  struct KeyGroup {
    int lanes, lane, number, count;
  };
  // 16 bytes of a row as they come from memory: whole words, so that nothing is done with them before they are there.
  struct alignas(16) Pack {
    std::uint32_t word[4];

    KOKKOS_FUNCTION Real operator[](int i) const {
      if constexpr (sizeof(Element) == 8) {
        return Kokkos::bit_cast<double>(std::uint64_t(word[i + i + 1]) << 32 | word[i + i]);
      } else if constexpr (sizeof(Element) == 4) {
        return Kokkos::bit_cast<float>(word[i]);
      } else {
        constexpr int bits = 8 * int(sizeof(Element)), of_word = 32 / bits;
        return to_real(Element{decltype(Element::bits)(word[i / of_word] >> (i % of_word * bits))});
      }
    }
  };
  struct Elements {
    Element value[width];
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
  template <class Lanes>
  KOKKOS_FUNCTION KeyGroup key_group(int rank) const {
    int lanes = 1;
    while (lanes < Lanes::width && lanes * width < task.head_dim()) lanes *= 2;
    return {lanes, rank % lanes, rank / lanes, threads / lanes};
  }
  // visit(number, row) for the team's rows; beyond their end the last one comes again.
  template <class F>
  KOKKOS_FUNCTION void each_row(Place const& at, F const& visit) const {
    AttentionRow row = task.row(at.kv_head, at.row);
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      visit(r, row);
      if (r + 1 < at.rows) row = task.next(at.kv_head, row);
    }
  }
  // visit(pack, column) for this lane's packs of a head.
  template <int packs, class F>
  KOKKOS_FUNCTION void each_pack(KeyGroup const& group, F const& visit) const {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      int const column = (group.lane + p * group.lanes) * width;
      if (column < task.head_dim()) visit(p, column);
    }
  }
  // The elements from `column` on, with zeros beyond the head.
  KOKKOS_FUNCTION Pack read_pack(Element const* row, int column) const {
    if constexpr (access == Access::wide) {
      return *reinterpret_cast<Pack const*>(row + column);
    } else {
      Elements elements{};
      for (int i = 0; i < width; ++i)
        if (column + i < task.head_dim()) elements.value[i] = row[column + i];
      return Kokkos::bit_cast<Pack>(elements);
    }
  }

  template <int packs>
  KOKKOS_FUNCTION void read_queries(Place const& at, KeyGroup const& group, X (&q)[rows][packs]) const {
    Pack pack[rows][packs];
    each_row(at, [&](int r, AttentionRow row) {
      Element const* const from = task.q.at(at.sequence, row.head, row.query);
      each_pack<packs>(group, [&](int p, int column) { pack[r][p] = read_pack(from, column); });
    });
#pragma unroll
    for (int r = 0; r < rows; ++r)
      each_pack<packs>(group, [&](int p, int) {
#pragma unroll
        for (int i = 0; i < width; ++i) q[r][p][i] = pack[r][p][i] * Real(task.scale);
      });
  }

  // What the keys [first, last) of this lane's group give to the rows.
  template <class Lanes, int packs>
  KOKKOS_FUNCTION void mix_keys(Lanes const& lanes, Place const& at, AttentionMask const& mask, KeyGroup const& group,
                                int first, int last, X const (&q)[rows][packs], Part<packs> (&part)[rows]) const {
    Element const* const k = task.k.at(at.sequence, at.kv_head);
    Element const* const v = task.v.at(at.sequence, at.kv_head);
    int end[rows];
    each_row(at, [&](int r, AttentionRow row) { end[r] = r < at.rows ? mask.end(at.sequence, row.query) : 0; });

    int const step = keys_at_once * group.count;
    for (int begin = first + group.number; begin - group.number < last; begin += step) {  // for all lanes as often
      Pack keys[keys_at_once][packs], values[keys_at_once][packs];
      bool exists[keys_at_once];
#pragma unroll
      for (int u = 0; u < keys_at_once; ++u) {  // all are under way before one is needed
        int const key = begin + u * group.count;
        exists[u] = key < last && mask.shows(at.sequence, key);
        std::ptrdiff_t const from = exists[u] ? key : first;
        each_pack<packs>(group, [&](int p, int column) {
          keys[u][p] = read_pack(k + from * task.k.stride(2), column);
          values[u][p] = read_pack(v + from * task.v.stride(2), column);
        });
      }
      Real score[rows][keys_at_once] = {};
#pragma unroll
      for (int u = 0; u < keys_at_once; ++u)
        each_pack<packs>(group, [&](int p, int) {
          X key;
#pragma unroll
          for (int i = 0; i < width; ++i) key[i] = keys[u][p][i];
#pragma unroll
          for (int r = 0; r < rows; ++r) score[r][u] += dot<Lanes>(q[r][p], key);
        });
      sum_lanes(lanes, group, score);
#pragma unroll
      for (int u = 0; u < keys_at_once; ++u) {
#pragma unroll
        for (int r = 0; r < rows; ++r)
          if (!exists[u] || begin + u * group.count >= end[r]) score[r][u] = nothing();
#pragma unroll
        for (int p = 0; p < packs; ++p)  // what is not there may hold anything, and 0 * NaN is NaN
          if (!exists[u]) values[u][p] = {};
      }
      Real keep[rows];
#pragma unroll
      for (int r = 0; r < rows; ++r) keep[r] = soften(score[r], part[r]);
      mix_values(group, score, keep, values, part);
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
  KOKKOS_FUNCTION static void sum_lanes(Lanes const& lanes, KeyGroup const& group, Real (&score)[rows][keys_at_once]) {
#pragma unroll
    for (int step = Lanes::width / 2; step > 0; step /= 2)
      if (step < group.lanes)
#pragma unroll
        for (int i = 0; i < rows * keys_at_once; ++i) {
          Real& own = score[i / keys_at_once][i % keys_at_once];
          own += lanes.shuffle_xor(own, step);
        }
  }
  // The online softmax: scores of some more keys of one row become weights. Returns what the sums before keep.
  template <int packs>
  KOKKOS_FUNCTION static Real soften(Real (&score)[keys_at_once], Part<packs>& part) {
    Real high = part.high;
#pragma unroll
    for (Real s : score) high = Kokkos::max(high, s);
    Real const shift = high == nothing() ? Real(0) : high, keep = backend::exp2(part.high - shift);
    part.high = high;
    part.sum *= keep;
#pragma unroll
    for (Real& s : score) {
      s = backend::exp2(s - shift);
      part.sum += s;
    }
    return keep;
  }
  template <int packs>
  KOKKOS_FUNCTION void mix_values(KeyGroup const& group, Real const (&weight)[rows][keys_at_once],
                                  Real const (&keep)[rows], Pack const (&values)[keys_at_once][packs],
                                  Part<packs> (&part)[rows]) const {
    each_pack<packs>(group, [&](int p, int) {
#pragma unroll
      for (int r = 0; r < rows; ++r)
#pragma unroll
        for (Real& value : part[r].value[p]) value *= keep[r];
#pragma unroll
      for (int u = 0; u < keys_at_once; ++u) {
        X value;
#pragma unroll
        for (int i = 0; i < width; ++i) value[i] = values[u][p][i];
#pragma unroll
        for (int r = 0; r < rows; ++r)
#pragma unroll
          for (int i = 0; i < width; ++i) part[r].value[p][i] += weight[r][u] * value[i];
      }
    });
  }

  // Merges the lane groups that exchange values, and writes one part for all of them: high, sum, columns.
  template <class Lanes, int packs>
  KOKKOS_FUNCTION void publish(Lanes const& lanes, KeyGroup const& group, Part<packs> (&part)[rows],
                               Real* scratch) const {
    int const lane = lanes.rank() % Lanes::width;
    Real* const own = scratch + (lanes.rank() / Lanes::width) * rows * (task.head_dim() + 2);
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      Real high = part[r].high;
#pragma unroll
      for (int step = Lanes::width / 2; step > 0; step /= 2)
        if (step >= group.lanes) high = Kokkos::max(high, lanes.shuffle_xor(high, step));
      Real const factor = backend::exp2(part[r].high - (high == nothing() ? Real(0) : high));
      auto const all = [&](Real x) {
        x *= factor;
#pragma unroll
        for (int step = Lanes::width / 2; step > 0; step /= 2)
          if (step >= group.lanes) x += lanes.shuffle_xor(x, step);
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
          int const column = (lane + p * group.lanes) * width + i;
          if (lane < group.lanes && column < task.head_dim()) to[2 + column] = value;
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
    each_row(at, [&](int r, AttentionRow row) {
      if (r >= at.rows) return;
      Real* const mixture = mixtures.data ? mixtures.at(part * task.rows() + at.row + r, at.segment) : nullptr;
      Element* const out = task.out.at(at.sequence, row.head, row.query);
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
    });
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
