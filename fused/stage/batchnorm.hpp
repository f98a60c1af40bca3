// SPDX-License-Identifier: Apache-2.0
// Batch normalisation with statistics that are known, as at inference:
//   y = max((x - mean(c)) / sqrt(variance(c) + epsilon) * weight(c) + bias(c), low)
// of channel c, which is the column (channels last), or what the row gives (one row for each image and channel). `low`
// is 0 for a ReLU and -infinity without. NaN stays NaN. Where variance and epsilon are both 0, nothing can be scaled:
// as in PyTorch, the mean itself gives NaN, and what is beside it an infinity. (epsilon counts as what it is in the
// type that is computed in: 1e-50 is 0 in float.)
#ifndef KFUSE_FUSED_STAGE_BATCHNORM_HPP
#define KFUSE_FUSED_STAGE_BATCHNORM_HPP

#include <kfuse/fused/stage/activation.hpp>
#include <kfuse/fused/stage/batch.hpp>

#include <cmath>
#include <limits>

namespace kfuse {

struct BatchNormOptions {
  double epsilon = 1e-5;
  Activation activation = Activation::none;  // or relu
};

namespace impl {

template <class Real>
KOKKOS_FUNCTION Real inverse_deviation(Real variance, double epsilon) {
  return backend::reciprocal_sqrt(variance + Real(epsilon));
}

// What a batch normalisation knows of its channels, in PyTorch's order.
template <class Element>
struct BatchNormChannels {
  Tensor<Element const, 1> mean, variance, weight, bias;  // [channels]
  double epsilon = 0;

  auto reads() const { return std::array{span_of(mean), span_of(variance), span_of(weight), span_of(bias)}; }
  void check(std::string_view where, int channels) const {
    for (auto const& t : {mean, variance, weight, bias})
      impl::check(t.extent(0) == channels, where, [&] {
        return name_of(t) + ": has " + std::to_string(t.extent(0)) + " entries for " + std::to_string(channels) +
               " channels; give it one for each channel";
      });
    impl::check(epsilon >= 0 && epsilon <= std::numeric_limits<float>::max(), where, [&] {
      return "epsilon is " + number_text(epsilon) +
             " (it is added to variances, whose root is taken, in float); give it a number from 0 to 3e38";
    });
  }
};

// What the values of a channel are multiplied by.
template <class Real, class Element>
KOKKOS_FUNCTION Real batchnorm_factor(Tensor<Element const, 1> const& variance, Tensor<Element const, 1> const& weight,
                                      double epsilon, std::ptrdiff_t channel) {
  Real const here = to_real(variance(channel)), factor = to_real(weight(channel));
  return inverse_deviation(here, epsilon) * factor;
}

// One value. The mean is subtracted first: folded into the bias, a large one would cancel there.
template <class Real>
KOKKOS_FUNCTION Real batchnormed(Real x, Real mean, Real factor, Real bias, Real low) {
  Real const y = (x - mean) * factor + bias;
  return y < low ? low : y;
}

inline float batchnorm_low(Activation activation) {
  return activation == Activation::relu ? 0 : -std::numeric_limits<float>::infinity();
}

}  // namespace impl

// Of rows whose columns are channels.
template <class Element>
struct BatchNormColumns {
  using stage = ElementStage;
  using element = Element;
  static constexpr int flops = 5;
  static constexpr int extra_registers = 28;

  impl::BatchNormChannels<Element> channels;
  float low;

  // The channels of some columns, for as many rows as follow.
  template <class X>
  struct Held {
    X mean, factor, bias;
    KOKKOS_FUNCTION void apply(X& x, float low) const {
      for (int i = 0; i < X::width; ++i)
        x[i] = impl::batchnormed(x[i], mean[i], factor[i], bias[i], typename X::Real(low));
    }
  };

  auto reads() const { return channels.reads(); }
  void check(std::string_view where, Shape shape) const { channels.check(where, shape.columns); }
  template <class X>
  KOKKOS_FUNCTION Held<X> held(int column) const {
    Held<X> held;
    read(channels.variance.at(column), held.factor);
    for (auto& v : held.factor) v = impl::inverse_deviation(v, channels.epsilon);
    X weight;
    read(channels.weight.at(column), weight);
    for (int i = 0; i < X::width; ++i) held.factor[i] *= weight[i];
    read(channels.mean.at(column), held.mean);
    read(channels.bias.at(column), held.bias);
    return held;
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    held<X>(at.column).apply(x, low);
  }
};

// Of rows that are images' channels, [images, channels].
template <class Element>
struct BatchNormRows {
  using stage = ElementStage;
  using element = Element;
  static constexpr int flops = 3;

  impl::BatchNormChannels<Element> channels;
  float low;
  impl::BatchRows rows;

  // Read one by one, whatever their alignment.
  auto reads() const {
    auto spans = channels.reads();
    for (Span& s : spans) s.element_bytes = 0;
    return spans;
  }
  struct Fetched {
    Element mean, variance, weight, bias;
  };
  template <class X>
  KOKKOS_FUNCTION Fetched fetch(Place at) const {
    int const c = rows.of(at.row).row;
    return {channels.mean(c), channels.variance(c), channels.weight(c), channels.bias(c)};
  }
  template <class X>
  KOKKOS_FUNCTION void take(X& x, Fetched const& fetched, Place) const {
    using Real = typename X::Real;
    Real const mean = to_real(fetched.mean), bias = to_real(fetched.bias);
    Real const factor =
        impl::inverse_deviation(Real(to_real(fetched.variance)), channels.epsilon) * to_real(fetched.weight);
    for (auto& v : x) v = impl::batchnormed(v, mean, factor, bias, Real(low));
  }
};

}  // namespace kfuse

#endif
