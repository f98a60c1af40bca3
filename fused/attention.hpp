// SPDX-License-Identifier: Apache-2.0
// Attention, without the matrix of scores in memory:
//
//   out(b, h, i) = sum over the keys j that query i sees of w(j) v(b, g, j),   g = h / (heads / kv_heads)
//   w = softmax over these j of scale q(b, h, i) . k(b, g, j)
//
// attention_mask.hpp says which keys a query sees; what it does not see may hold anything where no query sees it
// (beyond the length, or hidden by the key mask), and finite numbers where another query does. A query that sees
// nothing gets zeros. Scores, weights and sums are kept in float (double for double); on matrix instructions, weights
// are rounded to the element type.
//
// One launch: attention_tiles.hpp where there are matrix instructions and many queries, attention_rows.hpp elsewhere.
// With a workspace, few queries over many keys take two. The bits of a row depend on its query, its keys and the path;
// the path on shapes, element type and alignment (and both forms of attention_rows give the same bits).
#ifndef KFUSE_FUSED_ATTENTION_HPP
#define KFUSE_FUSED_ATTENTION_HPP

#include <kfuse/backends/fragment.hpp>
#include <kfuse/core/chain.hpp>
#include <kfuse/core/check_chain.hpp>
#include <kfuse/core/ledger.hpp>
#include <kfuse/core/workspace.hpp>
#include <kfuse/fused/attention_rows.hpp>
#include <kfuse/fused/attention_tiles.hpp>
#include <kfuse/fused/stage/activation.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

namespace kfuse {

struct AttentionOptions {
  double scale = 0;  // of q k; 0: 1 / sqrt(head_dim)
  Causal causal = Causal::no;
  Tensor<int const, 1> lengths{};           // [batch], in memory of the device: keys that exist; none: all
  Tensor<std::uint8_t const, 2> visible{};  // [batch, keys]: 0 hides a key from all queries; none: all are visible
};

struct AttentionShape {
  int batch, heads, kv_heads, queries, keys, head_dim;

  friend constexpr bool operator==(AttentionShape const&, AttentionShape const&) = default;
};

// q and out move once, and so do keys and values: all that there is memory for, since the host does not know lengths.
// Two products are computed for every key that a query sees.
constexpr Traffic attention_traffic(AttentionShape const& s, std::size_t element_bytes, Causal causal) {
  std::size_t const queries = s.queries, keys = s.keys, dim = s.head_dim;
  std::size_t const q = std::size_t(s.batch) * s.heads * queries * dim;
  std::size_t const kv = 2 * std::size_t(s.batch) * s.kv_heads * keys * dim;
  std::size_t seen = queries * keys;
  if (causal == Causal::yes) {
    std::size_t const seeing = std::min(queries, keys);  // the others come before the first key
    seen = seeing * (keys - seeing) + seeing * (seeing + 1) / 2;
  }
  return {.bytes_read = (q + kv) * element_bytes,
          .bytes_written = q * element_bytes,
          .flops = 4 * std::size_t(s.batch) * s.heads * seen * dim};
}

enum class AttentionPath {
  tiles,      // matrix instructions
  rows,       // plain arithmetic
  split_rows  // the same, and segments of keys have teams of their own
};

constexpr char const* name(AttentionPath path) {
  switch (path) {
    case AttentionPath::tiles:
      return "tiles";
    case AttentionPath::rows:
      return "rows";
    case AttentionPath::split_rows:
      return "split_rows";
  }
  return "?";
}

namespace impl {

// What the choice depends on besides the shape.
struct AttentionMeans {
  ElementType element = ElementType::fp32;
  Access access = Access::single;    // of rows of q, k, v and out
  bool matrix_instructions = false;  // does the space have some?
  std::ptrdiff_t teams_at_once = 0;  // that would fill the device; 0: there is no workspace
  int rows_of_team = 4;
};

constexpr bool allows_tiles(AttentionShape const& s, AttentionMeans const& means) {
  bool const is_16_bit = means.element == ElementType::bf16 || means.element == ElementType::fp16;
  return is_16_bit && means.access == Access::wide && s.head_dim <= 128 && s.keys > 0;
}
constexpr AttentionPath attention_path(AttentionShape const& s, AttentionMeans const& means) {
  constexpr int many_queries = 16;  // below, most of a tile would be empty
  if (means.matrix_instructions && s.queries >= many_queries && allows_tiles(s, means)) return AttentionPath::tiles;
  std::ptrdiff_t const rows = std::ptrdiff_t(s.heads / s.kv_heads) * s.queries;
  std::ptrdiff_t const teams = (rows + means.rows_of_team - 1) / means.rows_of_team * s.kv_heads * s.batch;
  bool const idle = 2 * teams <= means.teams_at_once && s.keys > attention_segment;
  return idle ? AttentionPath::split_rows : AttentionPath::rows;
}

template <class Element>
AttentionShape shape_of(AttentionTask<Element> const& task) {
  return {task.batch(), task.q.extent(1), task.kv_heads(), task.q.extent(2), task.keys(), task.head_dim()};
}

// Do the rows of an output lie apart?
template <class Element>
bool rows_lie_apart(Tensor<Element, 4> const& t) {
  if (t.empty()) return true;
  std::array<std::pair<std::ptrdiff_t, int>, 3> dimensions;  // stride, extent
  for (int d = 0; d < 3; ++d) dimensions[d] = {t.stride(d), t.extent(d)};
  std::ranges::sort(dimensions);
  std::ptrdiff_t reach = t.extent(3);
  for (auto const& [stride, extent] : dimensions) {
    if (extent == 1) continue;
    if (stride < reach) return false;
    reach += stride * (extent - 1);
  }
  return true;
}

template <class Element>
void check_attention(Tensor<Element const, 4> const& q, Tensor<Element const, 4> const& k,
                     Tensor<Element const, 4> const& v, Tensor<Element, 4> const& out,
                     AttentionOptions const& options) {
  auto const shapes = [&] { return "q is " + shape_text(q) + ", k is " + shape_text(k); };
  check(q.extent(0) == k.extent(0) && q.extent(3) == k.extent(3), "kfuse::attention: k",
        [&] { return shapes() + "; batch and head_dim of [batch, kv_heads, keys, head_dim] must be those of q"; });
  check(same_shape(k, v), "kfuse::attention: v", [&] {
    return "its shape " + shape_text(v) + " differs from that of k, " + shape_text(k) + "; each key has one value";
  });
  check(same_shape<Element const, Element>(q, out), "kfuse::attention: out", [&] {
    return "its shape " + shape_text(out) + " must be that of q, " + shape_text(q) + "; give it one row for each query";
  });
  bool const shares = k.extent(1) > 0 && q.extent(1) % k.extent(1) == 0;
  check(shares || (q.extent(1) == 0 && k.extent(1) == 0), "kfuse::attention: k",
        [&] { return shapes() + "; heads must be a multiple of kv_heads, since as many heads share each kv head"; });
  check(q.extent(3) <= max_head_dim, "kfuse::attention: q", [&] {
    return "head_dim is " + std::to_string(q.extent(3)) + ", but kernels have registers for " +
           std::to_string(max_head_dim) + "; use matmul and softmax";
  });
  check(!shares || std::ptrdiff_t(q.extent(1) / k.extent(1)) * q.extent(2) <= std::numeric_limits<int>::max(),
        "kfuse::attention: q", "more than 2^31 - 1 queries share a kv head; split the queries into several calls");
  check(options.scale == 0 || (options.scale >= double(std::numeric_limits<float>::min()) &&
                               options.scale <= double(std::numeric_limits<float>::max())),
        "kfuse::attention", [&] {
          return "scale must be a positive number that a float can hold (kernels compute in float), and is " +
                 number_text(options.scale) + "; choose 0 for 1 / sqrt(head_dim)";
        });
  check(options.lengths.data == nullptr || options.lengths.extent(0) == q.extent(0), "kfuse::attention: lengths", [&] {
    return std::to_string(options.lengths.extent(0)) + " lengths do not fit a batch of " + std::to_string(q.extent(0)) +
           "; give it one length for each sequence of the batch";
  });
  check(options.visible.data == nullptr ||
            (options.visible.extent(0) == q.extent(0) && options.visible.extent(1) == k.extent(2)),
        "kfuse::attention: visible", [&] {
          return "its shape " + shape_text(options.visible) + " is not [batch, keys], which are " +
                 std::to_string(q.extent(0)) + " and " + std::to_string(k.extent(2)) +
                 "; give it one byte for each key";
        });
  check(rows_lie_apart(out), "kfuse::attention: out",
        "its rows overlap (which of them stays would be chance); give it memory of its own");
  Span const to = span_of(out);
  check(!overlap(to, span_of(q)) && !overlap(to, span_of(k)) && !overlap(to, span_of(v)) &&
            !overlap(to, span_of(options.lengths)) && !overlap(to, span_of(options.visible)),
        "kfuse::attention: out",
        "it overlaps an input (which would be overwritten while it is read); give it memory of its own");
}

// Do all rows lie on 16-byte boundaries, in whole accesses of 16 bytes?
template <class Element>
Access access_of(AttentionTask<Element> const& task) {
  auto const wide = [](auto const& t) {
    Span const s = span_of(t);
    std::ptrdiff_t bits = std::ptrdiff_t(reinterpret_cast<std::uintptr_t>(s.data)) | t.extent(3) * int(sizeof(Element));
    for (int d = 0; d < 3; ++d)
      if (t.extent(d) > 1) bits |= t.stride(d) * int(sizeof(Element));
    return bits % 16 == 0;
  };
  return wide(task.q) && wide(task.k) && wide(task.v) && wide(task.out) ? Access::wide : Access::single;
}

template <class Space, class Element>
AttentionMeans attention_means(Space const& space, AttentionTask<Element> const& task, bool has_workspace) {
  using Rows = AttentionRowsKernel<Element, Access::wide, Backend<Space>::is_host ? 1 : 256>;
  AttentionMeans means{.element = element_type<Element>, .access = access_of(task), .rows_of_team = Rows::rows};
  if constexpr (!std::is_void_v<MatrixUnit<Space>>) means.matrix_instructions = MatrixUnit<Space>::is_hardware;
  if (has_workspace) means.teams_at_once = space.concurrency() / Rows::threads;
  return means;
}

template <class Space, class Element>
SegmentMixtures<Real<Element>> take_mixtures(Workspace<Space>& workspace, AttentionTask<Element> const& task) {
  SegmentMixtures<Real<Element>> mixtures{nullptr, attention_segments(task.keys()), task.head_dim()};
  mixtures.data = workspace
                      .template take<Real<Element>>("kfuse::attention", task.parts(), task.rows(), mixtures.segments,
                                                    mixtures.columns + 2)
                      .data;
  return mixtures;
}

// `mixtures` has memory if segments have teams of their own.
template <class Space, class Element>
void run_attention(Space const& space, AttentionTask<Element> const& task, AttentionPath path,
                   SegmentMixtures<Real<Element>> const& mixtures) {
  std::string const label = "kfuse::attention";
  int const launches = path == AttentionPath::split_rows ? 2 : 1;
  if (!Ledger::state(label, launches, attention_traffic(shape_of(task), sizeof(Element), task.mask.causal))) return;
  if constexpr (sizeof(Element) == 2 && !std::is_void_v<MatrixUnit<Space>>)
    if (path == AttentionPath::tiles) return launch_attention_tiles<MatrixUnit<Space>>(space, label, task);
  if (access_of(task) == Access::wide)
    launch_attention_rows<Access::wide>(space, label, task, mixtures);
  else
    launch_attention_rows<Access::single>(space, label, task, mixtures);
}

// The work that checked arguments describe.
template <class Element>
AttentionTask<Element> attention_task(Tensor<Element const, 4> const& q, Tensor<Element const, 4> const& k,
                                      Tensor<Element const, 4> const& v, Tensor<Element, 4> const& out,
                                      AttentionOptions const& options) {
  double const scale = options.scale > 0 ? options.scale : 1 / std::sqrt(double(q.extent(3)));
  AttentionMask const mask{q.extent(2),          k.extent(2),          options.causal,
                           options.lengths.data, options.visible.data, options.visible.stride(0)};
  return {q, k, v, out, mask, scale * log2_e<double>, q.extent(1) / k.extent(1)};
}

// A call whose arguments are checked and whose memory is taken.
template <class Element>
struct AttentionCall {
  AttentionTask<Element> task;
  AttentionPath path;
  SegmentMixtures<Real<Element>> mixtures;

  template <class Space>
  void operator()(Space const& space) const {
    if (!task.out.empty()) run_attention(space, task, path, mixtures);
  }
};

template <class Space, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out>
auto prepare_attention(Space const& space, Q const& q, K const& k, V const& v, Out const& out,
                       AttentionOptions const& options, Workspace<Space>* workspace) {
  using Element = std::remove_const_t<typename Out::value_type>;
  auto const queries = tensor_of<4, Space, Element const>(q, "kfuse::attention", "q");
  auto const keys = tensor_of<4, Space, Element const>(k, "kfuse::attention", "k");
  auto const values = tensor_of<4, Space, Element const>(v, "kfuse::attention", "v");
  auto const result = tensor_of<4, Space, Element>(out, "kfuse::attention", "out");
  check_attention(queries, keys, values, result, options);

  AttentionCall<Element> call{};
  if (result.empty()) return call;
  call.task = attention_task(queries, keys, values, result, options);
  call.path = attention_path(shape_of(call.task), attention_means(space, call.task, workspace != nullptr));
  if (call.path == AttentionPath::split_rows) call.mixtures = take_mixtures(*workspace, call.task);
  return call;
}

}  // namespace impl

// q, out: [batch, heads, queries, head_dim]; k, v: [batch, kv_heads, keys, head_dim], of one element type: fp64, fp32,
// bf16 or fp16, with a head_dim of at most 256. They may have any strides but the last, so [batch, tokens, heads,
// head_dim] in memory is a Tensor with other strides, and k and v may be a cache of which only the lengths are used.
// out must not lie among the others. Returns before the work is done.
template <class Space, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out>
requires Kokkos::is_execution_space_v<Space>
void attention(Space const& space, Q const& q, K const& k, V const& v, Out const& out,
               AttentionOptions const& options = {}) {
  impl::prepare_attention<Space>(space, q, k, v, out, options, nullptr)(space);
}
// The same bits; where rows are few, segments of their keys have teams of their own. That takes a second launch and
// memory of `workspace`.
template <class Space, TensorLike Q, TensorLike K, TensorLike V, TensorLike Out>
requires Kokkos::is_execution_space_v<Space>
void attention(Space const& space, Q const& q, K const& k, V const& v, Out const& out, AttentionOptions const& options,
               Workspace<Space>& workspace) {
  workspace.check_memory("kfuse::attention");
  auto const scope = workspace.scope();
  impl::prepare_attention(space, q, k, v, out, options, &workspace)(space);
}

}  // namespace kfuse

#endif
