// SPDX-License-Identifier: Apache-2.0
// Folds a batch normalisation into the linear layer (or convolution) before it, which then gives what both gave:
//   factor(o) = bn_weight(o) / sqrt(running_var(o) + epsilon)
//   out_weight(o, .) = weight(o, .) * factor(o),  out_bias(o) = (bias(o) - running_mean(o)) * factor(o) + bn_bias(o)
//
// The chain load | scale | store bias | store over the weight's rows, one for each output channel. Done once, when a
// model is read.
#ifndef KFUSE_FUSED_FOLD_BATCHNORM_HPP
#define KFUSE_FUSED_FOLD_BATCHNORM_HPP

#include <kfuse/core/check_chain.hpp>
#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/batchnorm.hpp>

namespace kfuse {

namespace impl {

// x = x * factor(row)
template <class Parameter>
struct FoldIntoWeight {
  using stage = ElementStage;
  using element = Parameter;
  static constexpr int flops = 1;
  static constexpr int extra_registers = 8;

  Tensor<Parameter const, 1> variance, bn_weight;  // [out]
  double epsilon;

  // One by one, whatever their alignment.
  auto reads() const {
    std::array spans{span_of(variance), span_of(bn_weight)};
    for (Span& s : spans) s.element_bytes = 0;
    return spans;
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    auto const factor = batchnorm_factor<typename X::Real>(variance, bn_weight, epsilon, at.row);
    for (auto& v : x) v *= factor;
  }
};

// With a row's first value, its bias.
template <class Parameter, class Bias>
struct StoreFoldedBias {
  using stage = ElementStage;
  using element = std::conditional_t<std::is_same_v<Bias, double>, double, Parameter>;  // which sets the arithmetic
  static constexpr int extra_registers = 16;
  static constexpr bool in_place = true;  // the lane that writes a bias is the only one that has read it

  BatchNormChannels<Parameter> channels;
  Tensor<Bias const, 1> bias;  // [out]; without memory: zeros
  Tensor<Bias, 1> out_bias;    // [out]

  // One by one, whatever their alignment. What the factor takes was read before.
  auto reads() const {
    std::array spans{span_of(channels.mean), span_of(channels.bias), span_of(bias)};
    for (Span& s : spans) s.element_bytes = 0;
    return spans;
  }
  auto writes() const {
    Span span = span_of(out_bias);
    span.element_bytes = 0;
    return std::array{span};
  }
  void check(std::string_view where, Shape shape) const {
    channels.check(where, int(shape.rows));
    impl::check(bias.data == nullptr || bias.extent(0) == shape.rows, where, [&] {
      return "bias: needs one entry for each row of weight, and has " + std::to_string(bias.extent(0)) + " for " +
             rows_text(shape) + "; give it as many, or no memory for a layer without";
    });
    impl::check(out_bias.extent(0) == shape.rows, where, [&] {
      return "out_bias: needs one entry for each row of weight, and has " + std::to_string(out_bias.extent(0)) +
             " for " + rows_text(shape) + "; give it as many";
    });
    impl::check(shape.columns > 0 || shape.rows == 0, where,
                "weight: has no columns (nothing would be folded); give it the inputs of the layer");
    for (Span const& read_by_all : {span_of(channels.variance), span_of(channels.weight)})
      impl::check(!overlap(span_of(out_bias), read_by_all), where, [&] {
        return "out_bias: overlaps " + name_of(read_by_all) +
               " (all values of a row need it, and the first one writes); give it memory of its own, or that of bias";
      });
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X const&, Place at) const {
    using Real = typename X::Real;
    if (at.column > 0) return;
    Real const given = bias.data ? to_real(bias(at.row)) : 0;
    Real const mean = to_real(channels.mean(at.row)), offset = to_real(channels.bias(at.row));
    Real const factor = batchnorm_factor<Real>(channels.variance, channels.weight, channels.epsilon, at.row);
    out_bias(at.row) = from_real<Bias>((given - mean) * factor + offset);
  }
};

template <class Space, TensorLike W, TensorLike B, TensorLike M, TensorLike V, TensorLike S, TensorLike O,
          TensorLike W2, TensorLike B2>
auto fold_batchnorm_chain(W const& weight, B const& bias, M const& mean, V const& variance, S const& bn_weight,
                          O const& bn_bias, W2 const& out_weight, B2 const& out_bias, double epsilon) {
  using Element = ElementOf<W>;
  using Parameter = ElementOf<M>;
  auto const in = tensor_of<2, Space, Element const>(weight, "kfuse::fold_batchnorm", "weight");
  auto const given = tensor_of<1, Space, ElementOf<B> const>(bias, "kfuse::fold_batchnorm", "bias");
  auto const out = tensor_of<2, Space, ElementOf<W2>>(out_weight, "kfuse::fold_batchnorm", "out_weight");
  auto const offsets = tensor_of<1, Space, ElementOf<B>>(out_bias, "kfuse::fold_batchnorm", "out_bias");
  BatchNormChannels<Parameter> const channels{
      tensor_of<1, Space, Parameter const>(mean, "kfuse::fold_batchnorm", "running_mean"),
      tensor_of<1, Space, Parameter const>(variance, "kfuse::fold_batchnorm", "running_var"),
      tensor_of<1, Space, Parameter const>(bn_weight, "kfuse::fold_batchnorm", "bn_weight"),
      tensor_of<1, Space, Parameter const>(bn_bias, "kfuse::fold_batchnorm", "bn_bias"), epsilon};
  return load(in) | FoldIntoWeight<Parameter>{channels.variance, channels.weight, epsilon} |
         StoreFoldedBias<Parameter, ElementOf<B>>{channels, given, offsets} | store(out);
}

}  // namespace impl

// weight, out_weight: [out, in] (a convolution's as [out, in * height * width]); bias, out_bias: [out]; a layer without
// a bias gives a Tensor without memory. running_mean, running_var, bn_weight, bn_bias: [out], of one element type.
// out_weight may be weight, and out_bias bias. Returns before the work is done.
template <class Space, TensorLike W, TensorLike B, TensorLike M, TensorLike V, TensorLike S, TensorLike O,
          TensorLike W2, TensorLike B2>
void fold_batchnorm(Space const& space, W const& weight, B const& bias, M const& running_mean, V const& running_var,
                    S const& bn_weight, O const& bn_bias, W2 const& out_weight, B2 const& out_bias,
                    double epsilon = 1e-5) {
  fuse(space, "kfuse::fold_batchnorm",
       impl::fold_batchnorm_chain<Space>(weight, bias, running_mean, running_var, bn_weight, bn_bias, out_weight,
                                         out_bias, epsilon));
}

template <class Space, TensorLike W, TensorLike B, TensorLike M, TensorLike V, TensorLike S, TensorLike O,
          TensorLike W2, TensorLike B2>
Traffic fold_batchnorm_traffic(Space const&, W const& weight, B const& bias, M const& running_mean,
                               V const& running_var, S const& bn_weight, O const& bn_bias, W2 const& out_weight,
                               B2 const& out_bias, double epsilon = 1e-5) {
  return traffic(impl::fold_batchnorm_chain<Space>(weight, bias, running_mean, running_var, bn_weight, bn_bias,
                                                   out_weight, out_bias, epsilon));
}

}  // namespace kfuse

#endif
