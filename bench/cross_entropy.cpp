// SPDX-License-Identifier: Apache-2.0
#include <kfuse/core/device.hpp>
#include <kfuse/fused/cross_entropy.hpp>
#include <kfuse/fused/log_softmax.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

#include "bench.hpp"

namespace {

enum class Gradient { no, in_place };

// gradient = exp(x) - [column = label], as a launch of its own over logarithms of probabilities.
struct FromLogProbabilities {
  using stage = kfuse::ElementStage;
  kfuse::Tensor<int, 1> labels;

  template <class X>
  KOKKOS_FUNCTION void apply(X& x, kfuse::Place at) const {
    int const label = labels(at.row);
    for (int i = 0; i < X::width; ++i) x[i] = Kokkos::exp(x[i]) - (at.column + i == label ? 1 : 0);
  }
};
// loss = -x(label), one column to each row
template <class Value>
struct NegativeLikelihood {
  using stage = kfuse::ElementStage;
  using element = Value;
  kfuse::Tensor<Value, 2> log_probabilities;
  kfuse::Tensor<int, 1> labels;

  kfuse::Shape shape() const { return {log_probabilities.extent(0), 1}; }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, kfuse::Place at) const {
    x[0] = -log_probabilities(at.row, labels(at.row));
  }
};

template <Gradient gradient>
struct CrossEntropy {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    using Value = kfuse::Real<Element>;
    int const rows = sizes["rows"], classes = sizes["classes"];
    std::vector<int> labels(rows);
    for (int r = 0; r < rows; ++r) labels[r] = int((r * 2654435761u) % unsigned(classes));
    auto const given = bench::random<Element>(memory, -4, 4, rows, classes);
    auto const label = bench::given(memory, labels);
    auto const loss = bench::empty<Value>(memory, rows);
    auto const log_probabilities = bench::empty<Value>(memory, rows, classes);
    kfuse::Tensor<Value, 2> const loss_column{loss.data, {rows, 1}, {1, 1}};
    kfuse::CrossEntropyOptions<Value> const options{.reduction = kfuse::Reduction::none};

    auto const log_sum = [](std::vector<double> const& x) {
      double sum = 0;
      for (double const v : x) sum += std::exp(v);
      return std::log(sum);
    };
    auto losses = bench::output("loss", loss_column, [=](std::ptrdiff_t r) {
      auto const x = bench::row<Space>(given, r);
      return std::vector<double>{log_sum(x) - x[labels[r]]};
    });
    losses.rows_checked = 16;
    auto const log_softmax_and_loss = [=](bench::Context<Space> const& on) {
      kfuse::log_softmax(on.space, given, log_probabilities, on.workspace);
      kfuse::fuse(on.space, "kfuse::eager::nll_loss",
                  NegativeLikelihood<Value>{log_probabilities, label} | kfuse::store(loss_column));
    };
    if constexpr (gradient == Gradient::no) {
      return {.fused =
                  [=](bench::Context<Space> const& on) {
                    kfuse::cross_entropy(on.space, given, label, loss, options, on.workspace);
                  },
              .eager = log_softmax_and_loss,
              .outputs = {losses}};
    } else {
      auto const logits = bench::empty<Element>(memory, rows, classes);  // and then the gradient
      auto slopes = bench::output("gradient", logits, [=](std::ptrdiff_t r) {
        auto x = bench::row<Space>(given, r);
        double const sum = log_sum(x);
        for (double& v : x) v = std::exp(v - sum);
        x[labels[r]] -= 1;
        return x;
      });
      slopes.floor = 1e-4;  // as for softmax
      return {.fused =
                  [=](bench::Context<Space> const& on) {
                    kfuse::cross_entropy(on.space, logits, label, loss, logits, options, on.workspace);
                  },
              .eager =
                  [=](bench::Context<Space> const& on) {
                    log_softmax_and_loss(on);
                    kfuse::fuse(on.space, "kfuse::eager::cross_entropy_gradient",
                                kfuse::load(log_probabilities) | FromLogProbabilities{label} | kfuse::store(logits));
                  },
              .outputs = {losses, slopes},
              .restore =
                  [=](bench::Context<Space> const& on) {
                    kfuse::copy_bytes(on.space, logits.data, given.data, std::size_t(logits.size()) * sizeof(Element));
                  }};
    }
  }
};

// A language model's vocabulary (Llama 3). The first only reads and is held against the speed of reading.
bench::Register<CrossEntropy<Gradient::no>> const loss_only("cross_entropy", "loss = cross_entropy(logits, labels)",
                                                            {{"rows", 4096}, {"classes", 128256}},
                                                            {{.at_least = 0.90}});
bench::Register<CrossEntropy<Gradient::in_place>> const with_gradient(
    "cross_entropy_gradient", "loss = cross_entropy(logits, labels), logits = its gradient",
    {{"rows", 4096}, {"classes", 128256}}, {{.at_least = 0.88}});

}  // namespace
