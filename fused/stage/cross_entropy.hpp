// SPDX-License-Identifier: Apache-2.0
// cross_entropy of a row of logits x with the label y, and its gradient. With p = softmax(x), lse = log(sum(exp(x))),
// class weights w (1 where there are none), V classes, label smoothing e and a coefficient z of the z-loss:
//
//   loss = w(y) ((1 - e) (lse - x(y)) + z lse^2) + e / V  sum over c of w(c) (lse - x(c))
//
// As d lse / d x(c) = p(c), and W = sum over c of w(c):
//
//   d loss / d x(c) = p(c) (w(y) (1 - e + 2 z lse) + e / V W) - [c = y] w(y) (1 - e) - e / V w(c)
//
// and where the logits are capped, x = cap tanh(u / cap), d loss / d u(c) = d loss / d x(c) (1 - (x(c) / cap)^2).
// All that is needed of the row comes of one reduction. Differences to the maximum (in double, to what is at most 1
// below it) are summed, not the logits: nothing cancels, however large they are.
#ifndef KFUSE_FUSED_STAGE_CROSS_ENTROPY_HPP
#define KFUSE_FUSED_STAGE_CROSS_ENTROPY_HPP

#include <kfuse/core/data_status.hpp>
#include <kfuse/fused/stage/exponential_sum.hpp>
#include <kfuse/fused/stage/labels.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <array>
#include <string>
#include <string_view>

namespace kfuse::impl {

// 0 times infinity is 0, as what has no weight counts for nothing. NaN stays NaN.
template <class Real>
KOKKOS_FUNCTION Real weighted(Real weight, Real x) {
  return weight == 0 && x == x ? Real(0) : weight * x;
}

// Do all classes of a row have a part in its loss, or the label's alone?
enum class Smoothing { no, yes };

template <class Real, Smoothing smoothing>
struct CrossEntropyShares : Exponentials<Real> {
  Real logit = 0;                       // of the label
  Real half_distance = 0, weights = 0;  // sums over c of e / V w(c) (reference - x(c)) / 2, and of w(c)
};
template <class Real>
struct CrossEntropyShares<Real, Smoothing::no> : Exponentials<Real> {
  Real logit = 0;
};

template <class Real_, Smoothing smoothing>
struct CrossEntropy {
  using stage = RowStage;
  static constexpr int flops = smoothing == Smoothing::yes ? 12 : 6;
  static constexpr bool computes_at_length = true;
  static constexpr int extra_registers = smoothing == Smoothing::yes ? 24 : 8;

  Labels labels;
  Tensor<Real_ const, 1> weight;  // [classes]; without memory: ones
  Real_ const* total_weight;      // what the gradient is divided by; null: 1
  Tensor<Real_, 1> losses;        // [rows]
  DataStatus status;
  double label_smoothing, z_loss, cap;
  double per_class;  // label_smoothing / V

  template <class Real>
  using Shares = CrossEntropyShares<Real, smoothing>;
  template <class Real>
  using Sum = ExponentialSum<Real, Shares<Real>>;

  template <class Real>
  struct Result {
    int label;  // below 0: the row does not count
    Real loss, reference;
    Real probability;  // times exp(x - reference)
    Real at_label, at_class;
  };

  auto reads() const {
    Span weights = span_of(weight);
    if (smoothing == Smoothing::no) weights.element_bytes = 0;
    weights.moved = weights.bytes();  // a gradient in their place would be seen by lanes that still read one of them
    Span const total{total_weight, total_weight ? 1 : 0, sizeof(Real_), 0, 0, -1, "total_weight"};
    return std::array{labels.span(), weights, total};
  }
  auto writes() const {
    Span span = span_of(losses);
    span.element_bytes = 0;
    return std::array{span};
  }
  void check(std::string_view where, Shape shape) const {
    impl::check(labels.rows == shape.rows, where, [&] {
      return "labels: has " + std::to_string(labels.rows) + " entries, but the logits are " + rows_text(shape) +
             "; give it one label for each row";
    });
    impl::check(losses.extent(0) == shape.rows, where, [&] {
      return "loss: has " + std::to_string(losses.extent(0)) + " entries, but the logits are " + rows_text(shape) +
             " (without a reduction each has a loss); give it one entry for each row, or ask for a mean or sum";
    });
    if (weight.data) check_vector(weight, where, shape);
    impl::check(label_smoothing >= 0 && label_smoothing <= 1, where, [&] {
      return "label_smoothing must be in [0, 1] (it is what the other classes share of a row's weight), and is " +
             number_text(label_smoothing) + "; choose 0 for none";
    });
    impl::check(z_loss >= 0 && z_loss <= 1e30, where, [&] {
      return "z_loss must be in [0, 1e30] (it is the coefficient of a square, computed with in float), and is " +
             number_text(z_loss) + "; choose 0 for none";
    });
  }

  template <class Real>
  KOKKOS_FUNCTION Sum<Real> identity() const {
    return {};
  }
  KOKKOS_FUNCTION int prepare(std::ptrdiff_t row) const { return labels(row); }
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(Sum<Real>& sum, X const& x, Place at, int label) const {
    if (holds<X::width>(at, label))
      for (int i = 0; i < X::width; ++i)
        if (at.column + i == label) sum.shares.logit = x[i];
    Real const before = sum.reference;
    add_exponentials(sum, x);
    if constexpr (smoothing == Smoothing::yes) {
      X const w = weights_at<X>(at);
      Real half_distance = 0, weights = 0;
      for (int i = 0; i < X::width; ++i) {
        half_distance += weighted(w[i] * Real(per_class), half_of_difference(sum.reference, x[i]));
        weights += w[i];
      }
      sum.shares.half_distance = moved(sum.shares, before, sum.reference) + half_distance;
      sum.shares.weights += weights;
    }
  }
  template <class Real>
  KOKKOS_FUNCTION void refer(Sum<Real>& sum, Real reference) const {
    if constexpr (smoothing == Smoothing::yes) sum.shares.half_distance = moved(sum.shares, sum.reference, reference);
    refer_exponentials(sum, reference);
  }
  template <class Real>
  KOKKOS_FUNCTION void join(Shares<Real>& a, Shares<Real> const& b) const {
    join_exponentials(a, b);
    a.logit += b.logit;  // one of them is 0
    if constexpr (smoothing == Smoothing::yes) {
      a.half_distance += b.half_distance;
      a.weights += b.weights;
    }
  }
  template <class Real>
  KOKKOS_FUNCTION Result<Real> finish(Sum<Real> const& sum, int, std::ptrdiff_t row) const {
    int const label = labels(row);
    if (label < 0) return {label, 0, 0, 0, 0, 0};
    Real const own = weight.data ? Real(weight(label)) : Real(1);
    auto const& s = sum.shares;
    Real const log_sum = Kokkos::log(s.sum), lse = sum.reference + log_sum;
    Real const certain = Real(1 - label_smoothing), z = Real(z_loss) * lse;
    Real const half_of_own = half_of_difference(sum.reference, s.logit) + Real(0.5) * log_sum;
    Real half = weighted(own, weighted(certain, half_of_own) + Real(0.5) * z * lse);  // of the loss
    Real probability = own * (certain + 2 * z);
    if constexpr (smoothing == Smoothing::yes) {
      Real const share = Real(per_class) * s.weights;
      half += s.half_distance + Real(0.5) * weighted(share, log_sum);
      probability += share;
    }
    Real const factor = total_weight == nullptr ? Real(1) : *total_weight == 0 ? Real(0) : 1 / Real(*total_weight);
    probability *= factor * backend::divide(Real(1), s.sum);
    return {label, 2 * half, sum.reference, probability, own * certain * factor, Real(per_class) * factor};
  }
  template <class Real>
  KOKKOS_FUNCTION void conclude(Result<Real> const& r, std::ptrdiff_t row) const {
    bool const outside = r.label == Labels::outside;
    if (outside) status.raise(DataFault::label);
    losses(row) = outside ? Kokkos::Experimental::quiet_NaN_v<Real_> : Real_(r.loss);
  }
  // x = the gradient.
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at, Result<typename X::Real> const& r) const {
    using Real = typename X::Real;
    X const logits = x;
    bool const counts = r.label >= 0;  // if not, the gradient is 0 whatever the logits are
#pragma unroll
    for (auto& v : x) v = exponential(v, r.reference) * r.probability;
    if (holds<X::width>(at, r.label) || !counts)
      for (int i = 0; i < X::width; ++i)
        x[i] = !counts ? Real(0) : at.column + i == r.label ? backend::add(x[i], -r.at_label) : x[i];
    if constexpr (smoothing == Smoothing::yes) {
      X const w = weights_at<X>(at);
      for (int i = 0; i < X::width; ++i) {
        Real const y = cap == 0 ? Real(0) : logits[i] * Real(1 / cap);
        x[i] = counts ? backend::add(x[i], -(w[i] * r.at_class)) * (1 - y * y) : Real(0);
      }
    }
  }

 private:
  template <int width>
  KOKKOS_FUNCTION static bool holds(Place at, int label) {
    return unsigned(label - at.column) < unsigned(width);
  }
  template <class X>
  KOKKOS_FUNCTION X weights_at(Place at) const {
    X w;
    if (weight.data)
      read(weight.at(at.column), w);
    else
      for (auto& v : w) v = 1;
    return w;
  }
  // Of finite numbers, always finite.
  template <class Real>
  KOKKOS_FUNCTION static Real half_of_difference(Real a, Real b) {
    return Real(0.5) * a - Real(0.5) * b;
  }
  // half_distance after the reference has grown. That of nothing stays, wherever the reference comes from.
  template <class Real>
  KOKKOS_FUNCTION Real moved(Shares<Real> const& s, Real from, Real to) const {
    return s.weights == 0 ? s.half_distance
                          : s.half_distance + s.weights * Real(per_class) * half_of_difference(to, from);
  }
};

// u = cap tanh(u / cap), or u where cap is 0: one kernel for both.
struct CapIfAny {
  using stage = ElementStage;
  static constexpr int flops = Softcap::flops;
  double cap;

  void check(std::string_view where, Shape shape) const {
    if (cap != 0) Softcap{cap}.check(where, shape);  // 0: none
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    if (cap != 0) Softcap{cap}.apply(x, at);
  }
};

}  // namespace kfuse::impl

#endif
