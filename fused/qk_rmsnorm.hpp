// SPDX-License-Identifier: Apache-2.0
// QK-norm: the root-mean-square normalisation of each head of Q and of K, before they are rotated (Qwen3, Gemma 3):
//   y(t, h, d) = x(t, h, d) / sqrt(mean over d of x(t, h, d)^2 + epsilon) * weight(d)
// where the weight is q_weight for the first q_heads heads, and k_weight for the others.
//
// One launch for both, the chain load_batch | root mean square | weights | store_batch over rows of one head. The
// strides of tokens and heads are free, so that x may be the columns of Q and K in rows [ Q | K | V ], normed in place.
#ifndef KFUSE_FUSED_QK_RMSNORM_HPP
#define KFUSE_FUSED_QK_RMSNORM_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/batch.hpp>
#include <kfuse/fused/stage/norm.hpp>

namespace kfuse {

namespace impl {

// x = x * q_weight, or k_weight, by the head that the row is.
template <class Element, class Input>
struct WeighHeads {
  using stage = ElementStage;
  using element = Element;
  static constexpr int flops = 2;

  Tensor<Element const, 1> q_weight, k_weight;  // [head_dim]
  Weighing weighing;
  int q_heads;
  BatchRows heads;

  auto reads() const { return std::array{span_of(q_weight), span_of(k_weight)}; }
  void check(std::string_view where, Shape shape) const {
    check_vector(q_weight, where, shape);
    check_vector(k_weight, where, shape);
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    X weights;
    read((heads.of(at.row).row < q_heads ? q_weight : k_weight).at(at.column), weights);
    weighing.template apply<Input>(x, weights);
  }
};

template <class Space, TensorLike X, TensorLike Q, TensorLike K, TensorLike Y>
auto qk_rmsnorm_chain(X const& x, int q_heads, Q const& q_weight, K const& k_weight, Y const& y,
                      RmsNormOptions const& options) {
  auto const in = tensor_of<3, Space, ElementOf<X> const>(x, "kfuse::qk_rmsnorm", "x");
  auto const q = tensor_of<1, Space, ElementOf<Q> const>(q_weight, "kfuse::qk_rmsnorm", "q_weight");
  auto const k = tensor_of<1, Space, ElementOf<Q> const>(k_weight, "kfuse::qk_rmsnorm", "k_weight");
  auto const out = tensor_of<3, Space, ElementOf<Y>>(y, "kfuse::qk_rmsnorm", "y");
  int const heads = in.extent(1);
  check(same_shape(in, out), "kfuse::qk_rmsnorm: y", [&] {
    return "shape " + shape_text(out) + " is not that of x, " + shape_text(in) + "; give it one value for each of x";
  });
  check(q_heads >= 0 && q_heads <= heads, "kfuse::qk_rmsnorm: q_heads", [&] {
    return std::to_string(q_heads) + " of " + std::to_string(heads) +
           " heads cannot be heads of Q; x has the heads of Q first and then those of K, q_heads + k_heads in all";
  });
  return load_batch(in) | RootMeanSquare<summation_of<ElementOf<Y>>>(options.epsilon) |
         WeighHeads<ElementOf<Q>, ElementOf<X>>{q, k, {options.weight, options.casting}, q_heads, BatchRows(heads)} |
         store_batch(out);
}

}  // namespace impl

// x, y: [tokens, q_heads + k_heads, head_dim]; q_weight, k_weight: [head_dim], of one element type. y may be x, unless
// both tokens and heads are apart. Returns before the work is done.
template <class Space, TensorLike X, TensorLike Q, TensorLike K, TensorLike Y>
void qk_rmsnorm(Space const& space, X const& x, int q_heads, Q const& q_weight, K const& k_weight, Y const& y,
                RmsNormOptions const& options = {}) {
  fuse(space, "kfuse::qk_rmsnorm", impl::qk_rmsnorm_chain<Space>(x, q_heads, q_weight, k_weight, y, options));
}
// The same bits, and heads that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike Q, TensorLike K, TensorLike Y>
void qk_rmsnorm(Space const& space, X const& x, int q_heads, Q const& q_weight, K const& k_weight, Y const& y,
                RmsNormOptions const& options, Workspace<Space>& workspace) {
  fuse(space, "kfuse::qk_rmsnorm", impl::qk_rmsnorm_chain<Space>(x, q_heads, q_weight, k_weight, y, options),
       workspace);
}

template <class Space, TensorLike X, TensorLike Q, TensorLike K, TensorLike Y>
Traffic qk_rmsnorm_traffic(Space const&, X const& x, int q_heads, Q const& q_weight, K const& k_weight, Y const& y,
                           RmsNormOptions const& options = {}) {
  return traffic(impl::qk_rmsnorm_chain<Space>(x, q_heads, q_weight, k_weight, y, options));
}

}  // namespace kfuse

#endif
