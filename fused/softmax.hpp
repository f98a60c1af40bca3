// SPDX-License-Identifier: Apache-2.0
// Softmax of each row:
//   y(r, c) = exp(scale x(r, c)) / sum over c of exp(scale x(r, c)), over the columns that are visible
//
// The chain load | mask | softmax | store. What is not visible gets zero, and so does a row in which nothing is, or
// which is -infinity throughout. A NaN or a +infinity that is visible makes its whole row NaN. Causal masks and sinks
// have kernels of their own, load | scale | mask | causal_mask | softmax_with_sinks | store, which also take long rows
// in double.
#ifndef KFUSE_FUSED_SOFTMAX_HPP
#define KFUSE_FUSED_SOFTMAX_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/causal.hpp>
#include <kfuse/fused/stage/mask.hpp>
#include <kfuse/fused/stage/softmax.hpp>

#include <cstdint>
#include <string>
#include <type_traits>

namespace kfuse {

// Sink: the element type of sinks.
template <class Sink>
struct SoftmaxOptions {
  double scale = 1;  // finite in float
  CausalVariant causal = CausalVariant::none;
  Tensor<Sink const, 1> sinks = {};  // [heads]: one more logit in the sum of each row of a head, not scaled
  int queries = 0;                   // with a causal mask or sinks, rows are [..., heads, queries]
};

namespace impl {

// Is one reduction faster than two? In double, of rows that registers do not hold: each pass reads a row again.
template <class C>
constexpr bool is_faster_in_one(C const&, int columns) {
  using Types = ChainTypes<C>;
  return std::is_same_v<typename Types::Real, double> && row_plan<C>(columns, Types::width).path == RowPath::passes;
}

// Calls run(chain) with what softmax of the scores is.
template <class Scores, class Element, class Sink, class F>
auto with_softmax(Scores const& scores, double factor, Tensor<Element, 2> const& out,
                  SoftmaxOptions<Sink> const& options, F const& run) {
  check(options.queries >= 0, "kfuse::softmax", [&] {
    return "queries is " + std::to_string(options.queries) +
           " (rows are [..., queries] with a causal mask or sinks); "
           "give it their number, or leave it out";
  });
  auto const sinks = tensor<1>(options.sinks, "kfuse::softmax", "sinks");
  auto const plain = scores | softmax<summation_of<Element>>(factor) | store(out);
  if (options.causal == CausalVariant::none && sinks.data == nullptr && !is_faster_in_one(plain, out.extent(1)))
    return run(plain);
  int const keys = shape_of(as_chain(scores), "kfuse::softmax").columns;
  return run(scores | scale(factor) | causal_mask(options.causal, options.queries, keys) |
             softmax_with_sinks(sinks, options.queries) | store(out));
}

template <class Space, TensorLike X, TensorLike Y, class Sink, class F>
auto with_softmax_of(X const& x, Y const& y, SoftmaxOptions<Sink> const& options, F const& run) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::softmax", "x");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::softmax", "y");
  return with_softmax(load(in), options.scale, out, options, run);
}
template <class Space, TensorLike X, TensorLike M, TensorLike Y, class Sink, class F>
auto with_softmax_of(X const& x, M const& visible, Y const& y, SoftmaxOptions<Sink> const& options, F const& run) {
  auto const in = tensor_of<2, Space, ElementOf<X> const>(x, "kfuse::softmax", "x");
  auto const seen = tensor_of<2, Space, std::uint8_t const>(visible, "kfuse::softmax", "visible");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, "kfuse::softmax", "y");
  // Scaled first: hidden values stay -infinity whatever the scale.
  return with_softmax(load(in) | scale(options.scale) | mask(seen), 1, out, options, run);
}

}  // namespace impl

// x, y: [rows, columns]. y may be x. Returns before the work is done.
template <class Space, TensorLike X, TensorLike Y, class Sink = impl::ElementOf<X>>
void softmax(Space const& space, X const& x, Y const& y, SoftmaxOptions<Sink> const& options = {}) {
  impl::with_softmax_of<Space>(x, y, options, [&](auto const& chain) { fuse(space, "kfuse::softmax", chain); });
}
// The same bits, and rows that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike Y, class Sink = impl::ElementOf<X>>
void softmax(Space const& space, X const& x, Y const& y, SoftmaxOptions<Sink> const& options,
             Workspace<Space>& workspace) {
  impl::with_softmax_of<Space>(x, y, options,
                               [&](auto const& chain) { fuse(space, "kfuse::softmax", chain, workspace); });
}

// visible: std::uint8_t, [rows, columns]; a value counts where it is not 0.
template <class Space, TensorLike X, TensorLike M, TensorLike Y, class Sink = impl::ElementOf<X>>
void softmax(Space const& space, X const& x, M const& visible, Y const& y, SoftmaxOptions<Sink> const& options = {}) {
  impl::with_softmax_of<Space>(x, visible, y, options,
                               [&](auto const& chain) { fuse(space, "kfuse::softmax", chain); });
}
// The same bits, and rows that are long and few are shared by several teams.
template <class Space, TensorLike X, TensorLike M, TensorLike Y, class Sink = impl::ElementOf<X>>
void softmax(Space const& space, X const& x, M const& visible, Y const& y, SoftmaxOptions<Sink> const& options,
             Workspace<Space>& workspace) {
  impl::with_softmax_of<Space>(x, visible, y, options,
                               [&](auto const& chain) { fuse(space, "kfuse::softmax", chain, workspace); });
}

template <class Space, TensorLike X, TensorLike Y, class Sink = impl::ElementOf<X>>
Traffic softmax_traffic(Space const&, X const& x, Y const& y, SoftmaxOptions<Sink> const& options = {}) {
  return impl::with_softmax_of<Space>(x, y, options, [](auto const& chain) { return traffic(chain); });
}
template <class Space, TensorLike X, TensorLike M, TensorLike Y, class Sink = impl::ElementOf<X>>
Traffic softmax_traffic(Space const&, X const& x, M const& visible, Y const& y,
                        SoftmaxOptions<Sink> const& options = {}) {
  return impl::with_softmax_of<Space>(x, visible, y, options, [](auto const& chain) { return traffic(chain); });
}

}  // namespace kfuse

#endif
