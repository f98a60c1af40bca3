// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention work on, and how its rows are counted.
#ifndef KFUSE_FUSED_ATTENTION_TASK_HPP
#define KFUSE_FUSED_ATTENTION_TASK_HPP

#include <kfuse/core/tensor.hpp>
#include <kfuse/fused/attention_mask.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace kfuse::impl {

// The largest head_dim: what kernels have registers for.
constexpr int max_head_dim = 256;

struct AttentionRow {
  int head, query;
};

// The rows that belong to one kv head are the queries of all heads that use it. Row r is query r / group of the head
// r % group among these: neighbours read the same keys and end at nearly the same one.
template <class Element>
struct AttentionTask {
  Tensor<Element const, 4> q;     // [batch, heads, queries, head_dim]
  Tensor<Element const, 4> k, v;  // [batch, kv_heads, keys, head_dim]
  Tensor<Element, 4> out;         // [batch, heads, queries, head_dim]
  AttentionMask mask;
  double scale;  // of q k, with log2(e): exponentials are taken to base 2
  int group;     // heads that use one kv head

  KOKKOS_FUNCTION int batch() const { return q.extent(0); }
  KOKKOS_FUNCTION int kv_heads() const { return k.extent(1); }
  KOKKOS_FUNCTION int keys() const { return k.extent(2); }
  KOKKOS_FUNCTION int head_dim() const { return q.extent(3); }
  KOKKOS_FUNCTION int rows() const { return group * q.extent(2); }  // of each kv head
  // Of rows and of keys, each kv head of each sequence has its own.
  KOKKOS_FUNCTION std::ptrdiff_t parts() const { return std::ptrdiff_t(batch()) * kv_heads(); }

  KOKKOS_FUNCTION AttentionRow row(int kv_head, int number) const {
    return {kv_head * group + number % group, number / group};
  }
  KOKKOS_FUNCTION AttentionRow next(int kv_head, AttentionRow row) const {
    if (++row.head < (kv_head + 1) * group) return row;
    return {kv_head * group, row.query + 1};
  }
  // The mask of a sequence, with its length in it.
  KOKKOS_FUNCTION AttentionMask mask_of(int sequence) const {
    AttentionMask own = mask;
    own.keys = mask.length(sequence);
    own.lengths = nullptr;
    return own;
  }
  // One past the last key that a row sees. It does not fall from row to row.
  KOKKOS_FUNCTION int end(int sequence, int number) const { return mask.end(sequence, number / group); }
};

}  // namespace kfuse::impl

#endif
