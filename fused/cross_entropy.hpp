// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy of each row of logits, in one pass, and the gradient in the same launch where it is asked
// for. The formulas are in stage/cross_entropy.hpp; without options,
//   loss(r) = log(sum over c of exp(logits(r, c))) - logits(r, labels(r))
//   gradient(r, c) = softmax(logits(r, .))(c) - [c = labels(r)]
//
// The chain load | cross_entropy, or load | cross_entropy | store; label smoothing and a cap have kernels of their own.
// With Reduction::mean a launch before it sums the weights of the labels, because the gradient needs them; with mean
// and sum a launch after it sums the losses. All in a fixed order.
//
// Rows whose label is ignore_index have the loss 0 and the gradient 0, whatever their logits are, and do not count in
// the mean; the mean over no rows that count is 0. Rows whose label is outside of the classes have the loss NaN (and so
// has the mean or sum), which options.status reports (DataFault::label), and the gradient 0; nothing is read for them.
// A row with a NaN or a +infinity, or of -infinity alone, has no softmax: its loss and gradient are NaN. The loss of a
// label whose logit is -infinity is infinity; what has weight 0 adds 0 even so.
#ifndef KFUSE_FUSED_CROSS_ENTROPY_HPP
#define KFUSE_FUSED_CROSS_ENTROPY_HPP

#include <kfuse/core/check_chain.hpp>
#include <kfuse/core/fuse.hpp>
#include <kfuse/core/ledger.hpp>
#include <kfuse/core/workspace.hpp>
#include <kfuse/fused/stage/cross_entropy.hpp>
#include <kfuse/fused/stage/labels.hpp>
#include <kfuse/fused/stage/sum_into.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace kfuse {

enum class Reduction { none, mean, sum };

// The names and the defaults are PyTorch's. Real: double for logits in double, float for all others.
template <class Real>
struct CrossEntropyOptions {
  Tensor<Real const, 1> weight = {};  // [classes], at least 0; without memory: ones
  std::int64_t ignore_index = -100;   // any number
  Reduction reduction = Reduction::mean;
  double label_smoothing = 0;         // in [0, 1]
  double z_loss = 0;                  // the coefficient of log(sum(exp(logits)))^2 (Chowdhery et al. 2022)
  double softcap = 0;                 // the logits are softcap tanh(logits / softcap); 0: as they are
  Tensor<Real, 1> total_weight = {};  // [1], for the sum that the mean divides by, if it is of interest
  DataStatus status = {};
};

namespace impl {

// Everything a call needs, once its losses and the total weight have a place.
template <class Element>
struct CrossEntropyCall {
  using Value = Real<Element>;
  Tensor<Element const, 2> logits;
  Labels labels;
  Tensor<Value, 1> losses;                    // [rows]
  Value* total_weight;                        // null unless for a mean
  CrossEntropyOptions<Value> const& options;  // whose weight is narrowed

  // Calls run(chain). `stores` takes the gradient.
  template <class F, Stage... Stores>
  void with_chain(F const& run, Stores const&... stores) const {
    if (options.label_smoothing == 0 && options.softcap == 0)
      run(((load(logits) | stage<Smoothing::no>()) | ... | stores));
    else
      run(((load(logits) | CapIfAny{options.softcap} | stage<Smoothing::yes>()) | ... | stores));
  }
  auto sum_of_weights() const {
    return LabelWeights<Value>{labels, options.weight} | SumInto<Value>(total_weight, nullptr);
  }
  auto sum_of_losses(Tensor<Value, 1> const& to) const {
    return load(Tensor<Value, 2>{losses.data, {1, losses.extent(0)}, {losses.extent(0), 1}}) |
           SumInto<Value>(to.data, total_weight);
  }

 private:
  template <Smoothing smoothing>
  auto stage() const {
    return CrossEntropy<Value, smoothing>{labels,         options.weight,  total_weight,
                                          losses,         options.status,  options.label_smoothing,
                                          options.z_loss, options.softcap, options.label_smoothing / logits.extent(1)};
  }
};

// What is written by a launch of its own must be apart from what any launch touches: a chain checks itself alone.
inline void check_apart(char const* written, Span const& own, char const* touched, Span const& other) {
  check(!overlap(own, other), "kfuse::cross_entropy", [&] {
    return std::string(written) + ": overlaps " + touched +
           " (of several launches, one would overwrite what another reads or has written); give it memory of its own";
  });
}

template <class Space, TensorLike X, TensorLike L, TensorLike R, Stage... Stores>
void cross_entropy(Space const& space, X const& logits, L const& labels, R const& loss,
                   CrossEntropyOptions<Real<ElementOf<X>>> options, Workspace<Space>& workspace,
                   Stores const&... stores) {
  using Element = ElementOf<X>;
  using Value = Real<Element>;
  static_assert(std::is_same_v<typename R::value_type, Value>,
                "kfuse: losses are double for logits in double, and float for all others");
  constexpr char const* name = "kfuse::cross_entropy";
  bool const reduced = options.reduction != Reduction::none, mean = options.reduction == Reduction::mean;
  auto const x = tensor_of<2, Space, Element const>(logits, "kfuse::cross_entropy", "logits");
  auto const result = tensor_of<1, Space, Value>(loss, "kfuse::cross_entropy", "loss");
  options.weight = tensor<1>(options.weight, "kfuse::cross_entropy", "weight");
  options.total_weight = tensor<1>(options.total_weight, "kfuse::cross_entropy", "total_weight");
  auto const classes = make_labels(tensor_of<1, Space, ElementOf<L> const>(labels, "kfuse::cross_entropy", "labels"),
                                   x.extent(1), options.ignore_index);
  check(x.extent(1) > 0 || x.extent(0) == 0, name, [&] {
    return "logits: shape " + shape_text(x) +
           " has no classes (rows without any have no softmax and no loss); give them one column at least";
  });
  check_one_of(options.reduction, Reduction::sum, name, "reduction");
  check(!reduced || result.extent(0) == 1, name, [&] {
    return "loss: has " + std::to_string(result.extent(0)) +
           " entries (a mean or a sum is one number); give it one entry, or ask for Reduction::none, which has one for "
           "each row";
  });
  check(options.total_weight.data == nullptr || (mean && options.total_weight.extent(0) == 1), name, [&] {
    return "total_weight: has " + std::to_string(options.total_weight.extent(0)) +
           " entries (it is the one number that a mean divides by); give it one entry and Reduction::mean, or leave it "
           "out";
  });

  auto const scope = workspace.scope();
  auto const losses = reduced ? workspace.template take<Value>(name, x.extent(0)) : result;
  auto const total =
      !mean || options.total_weight.data ? options.total_weight : workspace.template take<Value>(name, 1);
  for (auto const& [written, own] : {std::pair("loss", span_of(result)), std::pair("total_weight", span_of(total))}) {
    check_apart(written, own, "the logits", span_of(x));
    check_apart(written, own, "the labels", classes.span());
    check_apart(written, own, "the weight", span_of(options.weight));
    check_apart(written, own, "the status", span_of_value(options.status.memory()));
    (check_apart(written, own, "the gradient", writes(stores)[0]), ...);
  }
  check_apart("loss", span_of(result), "total_weight", span_of(total));

  CrossEntropyCall<Element> const call{x, classes, losses, total.data, options};
  auto const run = [&](auto const& chain) {
    // All are made, and with that checked, before the first is launched.
    Fusion const rows(space, name, chain, &workspace);
    if (!reduced) return rows.launch();
    Fusion const reduce(space, "kfuse::cross_entropy::reduce", call.sum_of_losses(result), &workspace);
    if (mean) Fusion(space, "kfuse::cross_entropy::total_weight", call.sum_of_weights(), &workspace).launch();
    rows.launch();
    reduce.launch();
  };
  call.with_chain(run, stores...);
}

}  // namespace impl

// logits: [rows, classes], of any element type. labels: int or std::int64_t, [rows]. loss: Real, [rows] without a
// reduction, [1] with one. Logits stay as they are. Returns before the work is done. With rows = 0 nothing is written.
// The workspace holds a Real for each row, if there is a reduction, and lets several teams share rows that are long and
// few: Workspace::counting() tells how large it must be.
template <class Space, TensorLike X, TensorLike L, TensorLike R>
void cross_entropy(Space const& space, X const& logits, L const& labels, R const& loss,
                   CrossEntropyOptions<Real<impl::ElementOf<X>>> const& options, Workspace<Space>& workspace) {
  impl::cross_entropy(space, logits, labels, loss, options, workspace);
}
// gradient: [rows, classes], of any element type: of the loss after its reduction, or without one, of each row's. It
// may be the logits, which it then overwrites.
template <class Space, TensorLike X, TensorLike L, TensorLike R, TensorLike G>
void cross_entropy(Space const& space, X const& logits, L const& labels, R const& loss, G const& gradient,
                   CrossEntropyOptions<Real<impl::ElementOf<X>>> const& options, Workspace<Space>& workspace) {
  auto const to = impl::tensor_of<2, Space, impl::ElementOf<G>>(gradient, "kfuse::cross_entropy", "gradient");
  impl::cross_entropy(space, logits, labels, loss, options, workspace, store(to));
}

// What all launches move.
template <class Space, TensorLike X, TensorLike L, TensorLike R>
Traffic cross_entropy_traffic(Space const& space, X const& logits, L const& labels, R const& loss,
                              CrossEntropyOptions<Real<impl::ElementOf<X>>> const& options = {}) {
  auto workspace = Workspace<Space>::counting();
  Ledger const ledger(Ledger::Execution::none);
  cross_entropy(space, logits, labels, loss, options, workspace);
  return ledger.traffic();
}
template <class Space, TensorLike X, TensorLike L, TensorLike R, TensorLike G>
Traffic cross_entropy_traffic(Space const& space, X const& logits, L const& labels, R const& loss, G const& gradient,
                              CrossEntropyOptions<Real<impl::ElementOf<X>>> const& options = {}) {
  auto workspace = Workspace<Space>::counting();
  Ledger const ledger(Ledger::Execution::none);
  cross_entropy(space, logits, labels, loss, gradient, options, workspace);
  return ledger.traffic();
}

}  // namespace kfuse

#endif
