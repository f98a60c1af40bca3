// SPDX-License-Identifier: Apache-2.0
// Which keys a query sees. One definition, used by every path of attention.
//
// Of sequence b, keys [0, length(b)) exist. The query number q of `queries` stands at key length(b) - queries + q: the
// queries are the last tokens, as in a chunk of prefill or a step of decode. It sees key k if
//   k < length(b),  k <= length(b) - queries + q (causal),  and visible(b, k) (if a key mask is given).
// A query that sees no key gets zeros.
#ifndef KFUSE_FUSED_ATTENTION_MASK_HPP
#define KFUSE_FUSED_ATTENTION_MASK_HPP

#include <kfuse/core/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>

namespace kfuse {

enum class Causal { no, yes };

struct AttentionMask {
  int queries = 0;  // of each sequence
  int keys = 0;     // memory holds so many of each sequence
  Causal causal = Causal::no;
  int const* lengths = nullptr;           // [batch], in device memory; null: all `keys` exist
  std::uint8_t const* visible = nullptr;  // [batch, keys] with the stride below; null: all are visible
  std::ptrdiff_t visible_stride = 0;

  // What a length says is clamped to the memory there is.
  KOKKOS_FUNCTION int length(int batch) const {
    int const n = lengths ? lengths[batch] : keys;
    return n < 0 ? 0 : n > keys ? keys : n;
  }
  // One past the last key that query q can see, before the key mask.
  KOKKOS_FUNCTION int end(int batch, int q) const {
    int const n = length(batch);
    if (causal == Causal::no) return n;
    int const last = n - queries + q + 1;
    return last < 0 ? 0 : last;
  }
  KOKKOS_FUNCTION bool shows(int batch, int key) const {
    return visible == nullptr || visible[batch * visible_stride + key] != 0;
  }
};

}  // namespace kfuse

#endif
