// SPDX-License-Identifier: Apache-2.0
// Segments of keys: what one of them gives a row, how segments are merged, and the kernel that does it if each had a
// team of its own.
#ifndef KFUSE_FUSED_ATTENTION_SEGMENTS_HPP
#define KFUSE_FUSED_ATTENTION_SEGMENTS_HPP

#include <kfuse/core/launch.hpp>
#include <kfuse/fused/attention_task.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace kfuse::impl {

constexpr int attention_segment = 128;  // keys

KOKKOS_INLINE_FUNCTION int attention_segments(int keys) {
  return keys / attention_segment + (keys % attention_segment > 0);
}

// What some keys give one row: their highest score, and, relative to it, the sum of the weights 2^(score - high) and
// some columns of the weighted values.
template <class Real, int columns>
struct Mixture {
  Real high = -Kokkos::Experimental::infinity_v<Real>, sum = 0;
  Real value[columns] = {};

  // Adds what other, later keys give. Written so that no compiler rounds it in two ways.
  template <class ValueOf>
  KOKKOS_FUNCTION void merge(Real other_high, Real other_sum, ValueOf const& other_value) {
    if (other_sum == 0) return;
    Real const top = Kokkos::max(high, other_high);
    Real const keep = backend::exp2(high - top), take = backend::exp2(other_high - top);
    high = top;
    sum = Kokkos::fma(sum, keep, other_sum * take);
#pragma unroll
    for (int i = 0; i < columns; ++i) value[i] = Kokkos::fma(value[i], keep, other_value(i) * take);
  }
  KOKKOS_FUNCTION Real mean(int i) const {
    return sum == 0 ? 0 : value[i] / sum;
  }
};

// Mixtures of segments in memory: those of a row lie together.
template <class Real>
struct SegmentMixtures {
  Real* data = nullptr;  // null: there are none, each team takes all segments
  int segments = 1, columns = 0;

  KOKKOS_FUNCTION Real* at(std::ptrdiff_t row, int segment) const {
    return data + (row * segments + segment) * (columns + 2);
  }
};

// One team for each row, which merges its segments in their order.
template <class Element, int threads_>
struct AttentionMergeKernel {
  using Real = kfuse::Real<Element>;
  static constexpr int threads = threads_, registers = 64;
  static constexpr int own_columns = (max_head_dim + threads - 1) / threads;

  AttentionTask<Element> task;
  SegmentMixtures<Real> mixtures;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const lanes(team);
    int const row = team.league_rank() % task.rows(), part = team.league_rank() / task.rows();
    int const sequence = part / task.kv_heads(), segments = attention_segments(task.end(sequence, row));
    Mixture<Real, own_columns> total;
    for (int s = 0; s < segments; ++s) {
      Real const* const mixture = mixtures.at(team.league_rank(), s);
      total.merge(mixture[0], mixture[1], [&](int i) {
        int const column = lanes.rank() + i * threads;
        return column < task.head_dim() ? mixture[2 + column] : Real(0);
      });
    }
    AttentionRow const place = task.row(part % task.kv_heads(), row);
    Element* const out = task.out.at(sequence, place.head, place.query);
#pragma unroll
    for (int i = 0; i < own_columns; ++i)
      if (int const column = lanes.rank() + i * threads; column < task.head_dim())
        out[column] = from_real<Element>(total.mean(i));
  }
};

}  // namespace kfuse::impl

#endif
