// SPDX-License-Identifier: Apache-2.0
// rmsnorm:   y = x / sqrt(mean(x^2) + epsilon) * weight
// layernorm: y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * weight + bias
//
// LayerNorm is two reductions, the mean and then the squares of what is left: nothing cancels, and in registers it is
// faster than one reduction of merged moments (H200, 2026-11-29: 0.90 against 0.86 of a copy).
//
// How the weight is stored and where values are rounded is known at run time: a branch for a pack of values costs
// nothing beside their bytes, and saves kernels.
#ifndef KFUSE_FUSED_STAGE_NORM_HPP
#define KFUSE_FUSED_STAGE_NORM_HPP

#include <kfuse/fused/stage/arithmetic.hpp>

#include <cmath>
#include <type_traits>

namespace kfuse {

// What multiplies the normalised values: the weight, or one more than the weight (Gemma; NeMo's LayerNorm1P). The one
// is added in float (or double), whatever type the weight is stored in.
enum class NormWeight { as_given, one_plus };

// gemma: values are rounded once, when they are stored. llama: normalised values are rounded to the type of x before
// the weight, too, as Hugging Face's LlamaRMSNorm does. They differ for 16-bit types alone.
enum class NormCasting { gemma, llama };

struct RmsNormOptions {
  double epsilon = 1e-6;
  NormWeight weight = NormWeight::as_given;
  NormCasting casting = NormCasting::gemma;
};

struct LayerNormOptions {
  double epsilon = 1e-5;
  NormWeight weight = NormWeight::as_given;
};

namespace impl {

// A sum, and what its rounding has lost (Knuth's sum of two numbers): the order in which many values are added costs no
// digits, not even where one lane adds a whole row, and the mean of equal values is exactly their value.
template <class Real>
struct ExactSum {
  Real sum, lost;

  KOKKOS_FUNCTION void add(Real v) {
    Real const total = sum + v, added = total - sum;
    lost += (sum - (total - added)) + (v - added);
    sum = total;
  }
  // Of infinities and NaNs nothing is lost, but their difference is NaN.
  KOKKOS_FUNCTION Real rounded() const { return lost == lost ? sum + lost : sum; }
};

// f(x[begin]) + ... in pairs: equal values add up exactly.
template <int begin, int count, class X, class F>
KOKKOS_FUNCTION typename X::Real sum_in_pairs(X const& x, F const& f) {
  if constexpr (count == 1)
    return f(x[begin]);
  else
    return sum_in_pairs<begin, count / 2>(x, f) + sum_in_pairs<begin + count / 2, count - count / 2>(x, f);
}

// What the row stages here have in common.
struct SumOfRow {
  using stage = RowStage;
  template <class Real>
  KOKKOS_FUNCTION ExactSum<Real> identity() const {
    return {0, 0};
  }
  template <class Real>
  KOKKOS_FUNCTION void merge(ExactSum<Real>& a, ExactSum<Real> const& b) const {
    a.add(b.sum);
    a.lost += b.lost;
  }
};

// x = x * weights, as the options of a norm say. Input is the element type of the norm's x.
struct Weighing {
  NormWeight weight = NormWeight::as_given;
  NormCasting casting = NormCasting::gemma;

  template <class Input, class X>
  KOKKOS_FUNCTION void apply(X& x, X const& weights) const {
    using Real = typename X::Real;
    if constexpr (!std::is_same_v<Input, Real>)
      if (casting == NormCasting::llama)
        for (auto& v : x) v = Real(to_real(from_real<Input>(v)));
    Real const offset = weight == NormWeight::one_plus ? 1 : 0;
    for (int i = 0; i < X::width; ++i) x[i] *= weights[i] + offset;
  }
};

}  // namespace impl

// y = x / sqrt(mean(x^2) + epsilon). Squares that the sums' type cannot hold are infinite, and leave zeros.
struct RootMeanSquare : impl::SumOfRow {
  static constexpr int flops = 3;
  double epsilon;

  explicit RootMeanSquare(double e) : epsilon(e) {}
  void check(std::string_view where, Shape) const {
    impl::check(epsilon >= 0 && std::isfinite(epsilon), where, "norm: epsilon must be finite and not negative");
  }
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(impl::ExactSum<Real>& sum, X const& x, Place) const {
    sum.add(impl::sum_in_pairs<0, X::width>(x, [](Real v) { return v * v; }));
  }
  template <class Real>
  KOKKOS_FUNCTION Real finish(impl::ExactSum<Real> const& sum, int columns) const {
    Real const square = backend::divide(sum.rounded(), Real(columns)) + Real(epsilon);
    return square == 0 ? Real(0) : backend::reciprocal_sqrt(square);  // zeros stay zeros without an epsilon, too
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place, typename X::Real factor) const {
    for (auto& v : x) v *= factor;
  }
};

// y = x - mean(x). A row of equal values leaves exactly nothing.
struct Center : impl::SumOfRow {
  static constexpr int flops = 2;
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(impl::ExactSum<Real>& sum, X const& x, Place) const {
    sum.add(impl::sum_in_pairs<0, X::width>(x, [](Real v) { return v; }));
  }
  template <class Real>
  KOKKOS_FUNCTION Real finish(impl::ExactSum<Real> const& sum, int columns) const {
    Real const n = Real(columns), mean = sum.sum / n;
    Real const rest = (Kokkos::fma(-mean, n, sum.sum) + sum.lost) / n;  // what the division has lost, too
    return rest == rest ? mean + rest : mean;
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place, typename X::Real mean) const {
    for (auto& v : x) v -= mean;
  }
};

// x * weight, or x * (1 + weight), of normalised values.
template <class Element, class Input, class Memory = void>
struct WeighNormed {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;
  static constexpr int flops = 2;

  Tensor<Element const, 1> from;  // [columns]
  impl::Weighing weighing;

  auto reads() const { return std::array{span_of(from)}; }
  void check(std::string_view where, Shape shape) const { impl::check_vector(from, where, "weight", shape); }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    X weights;
    read(from.at(at.column), weights);
    weighing.template apply<Input>(x, weights);
  }
};

// weight: [columns]. Input is the element type that NormCasting::llama rounds to; if not given, the weight's.
template <class Input = void, TensorLike W>
auto rmsnorm(W const& w, RmsNormOptions const& options = {}) {
  using Element = impl::ElementOf<W>;
  using Rounded = std::conditional_t<std::is_void_v<Input>, Element, Input>;
  return RootMeanSquare(options.epsilon) | WeighNormed<Element, Rounded, typename impl::MemoryOf<W>::type>{
                                               impl::tensor<1>(w, "weight"), {options.weight, options.casting}};
}

// weight, bias: [columns]
template <TensorLike W, TensorLike B>
auto layernorm(W const& w, B const& b, LayerNormOptions const& options = {}) {
  using Element = impl::ElementOf<W>;
  return Center{} | RootMeanSquare(options.epsilon) |
         WeighNormed<Element, Real<Element>, typename impl::MemoryOf<W>::type>{impl::tensor<1>(w, "weight"),
                                                                               {.weight = options.weight}} |
         bias(b);
}

}  // namespace kfuse

#endif
