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
#include <kfuse/fused/stage/sum.hpp>

#include <limits>
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

// x = x * weights, as the options of a norm say. Input is the element type of the norm's x.
struct Weighing {
  NormWeight weight = NormWeight::as_given;
  NormCasting casting = NormCasting::gemma;

  template <class Input, class X>
  KOKKOS_FUNCTION void apply(X& x, X const& weights) const {
    using Real = typename X::Real;
    if constexpr (!std::is_same_v<Input, Real>)
      if (casting == NormCasting::llama) round_to<Input>(x);
    Real const offset = weight == NormWeight::one_plus ? 1 : 0;
    for (int i = 0; i < X::width; ++i) x[i] *= weights[i] + offset;
  }
};

}  // namespace impl

// y = x / sqrt(mean(x^2) + epsilon). Squares that the sums' type cannot hold are infinite, and leave zeros.
template <Summation summation = Summation::compensated>
struct RootMeanSquare : impl::SumOfRow<summation> {
  static constexpr int flops = 3;
  double epsilon;

  explicit RootMeanSquare(double e) : epsilon(e) {}
  void check(std::string_view where, Shape) const {
    impl::check(epsilon >= 0 && epsilon <= std::numeric_limits<float>::max(), where, [&] {
      return "epsilon is " + impl::number_text(epsilon) +
             " (it is added to a mean of squares, whose root is taken, in float); give it a number from 0 to 3e38";
    });
  }
  template <class Sum, class X>
  KOKKOS_FUNCTION void accumulate(Sum& sum, X const& x, Place) const {
    if constexpr (std::is_same_v<Sum, float>)
      for (auto v : x) sum += v * v;
    else
      impl::add_to(sum, impl::sum_in_pairs<0, X::width>(x, [](auto v) { return v * v; }));
  }
  template <class Sum>
  KOKKOS_FUNCTION auto finish(Sum const& sum, int columns) const {
    auto const total = impl::rounded_sum(sum);
    using Real = std::remove_const_t<decltype(total)>;
    Real const square = backend::divide(total, Real(columns)) + Real(epsilon);
    return square == 0 ? Real(0) : backend::reciprocal_sqrt(square);  // zeros stay zeros without an epsilon, too
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place, typename X::Real factor) const {
    for (auto& v : x) v *= factor;
  }
};

// y = x - mean(x). A row of equal values leaves exactly nothing: packs of them add up exactly in pairs, the sums of
// packs in twice the digits, and what the division loses is divided once more. 16-bit values need it, too: 2047 in fp16
// has so many digits that float cannot hold 12345 times it.
struct Center : impl::SumOfRow<Summation::compensated> {
  static constexpr int flops = 2;
  template <class Sum, class X>
  KOKKOS_FUNCTION void accumulate(Sum& sum, X const& x, Place) const {
    impl::add_to(sum, impl::sum_in_pairs<0, X::width>(x, [](auto v) { return v; }));
  }
  KOKKOS_FUNCTION float finish(double sum, int columns) const {
    double const share = backend::reciprocal(float(columns));
    auto const mean = float(sum * share), rest = float((sum - double(mean) * columns) * share);
    return rest == rest ? mean + rest : mean;
  }
  KOKKOS_FUNCTION double finish(impl::ExactSum const& sum, int columns) const {
    double const n = columns, mean = sum.sum / n;
    double const rest = (Kokkos::fma(-mean, n, sum.sum) + sum.lost) / n;
    return rest == rest ? mean + rest : mean;
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place, typename X::Real mean) const {
    for (auto& v : x) v = backend::add(v, -mean);
  }
};

// x * weight, or x * (1 + weight), of normalised values.
template <class Element, class Input, class Memory = void>
struct WeighNormed {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;
  static constexpr int flops = 2;
  static constexpr bool column_input = true;

  Tensor<Element const, 1> from;  // [columns]
  impl::Weighing weighing;

  auto reads() const { return std::array{span_of(from)}; }
  void check(std::string_view where, Shape shape) const {
    impl::check_vector(from, where, shape);
    impl::check_one_of(weighing.weight, NormWeight::one_plus, where, "options.weight");
    impl::check_one_of(weighing.casting, NormCasting::llama, where, "options.casting");
  }
  template <class X>
  KOKKOS_FUNCTION auto fetch(Place at) const {
    return kfuse::fetch<X>(from.at(at.column));
  }
  template <class X, class Fetched>
  KOKKOS_FUNCTION void take(X& x, Fetched const& fetched, Place) const {
    X weights;
    unpack(fetched, weights);
    weighing.template apply<Input>(x, weights);
  }
};

// weight: [columns]. Input is the element type of the values, which NormCasting::llama rounds to; if not given, the
// weight's. summation: summation_of the result's type; as it stands, right for all.
template <class Input = void, Summation summation = Summation::compensated, TensorLike W>
auto rmsnorm(W const& w, RmsNormOptions const& options = {}) {
  using Element = impl::ElementOf<W>;
  using Rounded = std::conditional_t<std::is_void_v<Input>, Element, Input>;
  return RootMeanSquare<summation>(options.epsilon) |
         WeighNormed<Element, Rounded, typename impl::MemoryOf<W>::type>{impl::tensor<1>(w, "kfuse", "weight"),
                                                                         {options.weight, options.casting}};
}

// weight, bias: [columns]. summation as in rmsnorm.
template <Summation summation = Summation::compensated, TensorLike W, TensorLike B>
auto layernorm(W const& w, B const& b, LayerNormOptions const& options = {}) {
  using Element = impl::ElementOf<W>;
  return Center{} | RootMeanSquare<summation>(options.epsilon) |
         WeighNormed<Element, Real<Element>, typename impl::MemoryOf<W>::type>{impl::tensor<1>(w, "kfuse", "weight"),
                                                                               {.weight = options.weight}} |
         bias(b);
}

}  // namespace kfuse

#endif
