// SPDX-License-Identifier: Apache-2.0
// linear: a projection with what follows it.
//
//   y = activation(x w^T + bias) + residual
//
// One launch where the matrix library applies all that is asked for: on NVIDIA GPUs bias, relu and gelu_tanh, or bias
// and residual, for all types but fp64. One launch where our own kernel runs: on the host for 16-bit types, and for
// what the library refuses. Otherwise two: the product, rounded to y, and a chain over y for the rest. linear_path says
// which. A call of the library counts as one launch, though it may start a second kernel to join the parts of long
// sums.
#ifndef KFUSE_FUSED_LINEAR_HPP
#define KFUSE_FUSED_LINEAR_HPP

#include <kfuse/core/blas.hpp>
#include <kfuse/core/check_chain.hpp>
#include <kfuse/core/fuse.hpp>
#include <kfuse/core/ledger.hpp>
#include <kfuse/core/product_kernel.hpp>
#include <kfuse/fused/stage/activation.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>

namespace kfuse {

// How the weight lies in memory: as PyTorch keeps it, or as GPT-2's Conv1D does.
enum class WeightLayout { out_in, in_out };

template <class Element>
struct LinearOptions {
  Tensor<Element const, 1> bias{};      // [out]; without memory: none
  Tensor<Element const, 2> residual{};  // [rows, out]; without memory: none; may be y
  Activation activation = Activation::none;
  WeightLayout weight = WeightLayout::out_in;
};

// Every argument moves once; the flops are those of the product.
template <class Element>
Traffic linear_traffic(Tensor<Element const, 2> const& x, Tensor<Element const, 2> const& w,
                       Tensor<Element, 2> const& y, LinearOptions<Element> const& options = {}) {
  std::ptrdiff_t const bias = options.bias.data ? options.bias.size() : 0;
  std::ptrdiff_t const residual = options.residual.data ? options.residual.size() : 0;
  return {.bytes_read = std::size_t(x.size() + w.size() + bias + residual) * sizeof(Element),
          .bytes_written = std::size_t(y.size()) * sizeof(Element),
          .flops = 2 * std::size_t(y.size()) * std::size_t(x.extent(1))};
}

enum class LinearPath { library, library_then_epilogue, own_kernel };

namespace impl {

constexpr std::optional<ProductActivation> product_activation(Activation activation) {
  switch (activation) {
    case Activation::none:
      return ProductActivation::none;
    case Activation::relu:
      return ProductActivation::relu;
    case Activation::gelu_tanh:
      return ProductActivation::gelu_tanh;
    default:
      return std::nullopt;
  }
}

// The way that types and options ask for. What the library then refuses goes one way further down.
template <class Space>
constexpr LinearPath linear_path(ElementType element, int depth, bool bias, Activation activation, Residual residual) {
  using Library = Blas<Space>;
  if (depth == 0) return LinearPath::own_kernel;
  auto const known = product_activation(activation);
  if (known && Library::fuses(element, {bias, *known, residual})) return LinearPath::library;
  // A residual in y's place is gone after the product, unless that adds it: then nothing may come in between.
  bool const adds = activation == Activation::none && Library::fuses(element, {.residual = residual});
  return residual == Residual::in_place && !adds ? LinearPath::own_kernel : LinearPath::library_then_epilogue;
}

// v = activation(v + bias) + residual, for what of it there is.
template <class Element>
struct LinearEpilogue {
  using stage = ElementStage;
  using element = Element;
  static constexpr int flops = 2 + ActivateChosen::flops;
  static constexpr int extra_registers = 24;  // then no case of the activation spills

  Tensor<Element const, 1> bias;
  Tensor<Element const, 2> residual;
  Activation activation;

  auto reads() const {
    return std::array{bias.data ? span_of(bias) : Span{}, residual.data ? span_of(residual) : Span{}};
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    X other;
    if (bias.data != nullptr) {
      read(bias.at(at.column), other);
      for (int i = 0; i < X::width; ++i) x[i] += other[i];
    }
    ActivateChosen{activation}.apply(x, at);
    if (residual.data != nullptr) {
      read(residual.at(at.row, at.column), other);
      for (int i = 0; i < X::width; ++i) x[i] += other[i];
    }
  }
};

template <class Element>
void check_linear(Tensor<Element const, 2> const& x, Tensor<Element const, 2> const& w, Tensor<Element, 2> const& y,
                  LinearOptions<Element> const& options) {
  bool const out_in = options.weight == WeightLayout::out_in;
  int const out = w.extent(out_in ? 0 : 1), in = w.extent(out_in ? 1 : 0);
  check(x.extent(1) == in, "kfuse::linear: w", [&] {
    return "its shape " + shape_text(w) + ", taken as " + (out_in ? "[out, in]" : "[in, out]") +
           ", does not fit x, which is " + shape_text(x) + "; is the other WeightLayout meant?";
  });
  check(y.extent(0) == x.extent(0) && y.extent(1) == out, "kfuse::linear: y", [&] {
    return "its shape is " + shape_text(y) + ", but x " + shape_text(x) + " and w " + shape_text(w) + " make [" +
           std::to_string(x.extent(0)) + ", " + std::to_string(out) + "]; give y that shape";
  });
  check(options.bias.data == nullptr || options.bias.extent(0) == out, "kfuse::linear: bias", [&] {
    return "it has " + std::to_string(options.bias.extent(0)) + " entries, but y has " + std::to_string(out) +
           " columns; give it one entry for each column";
  });
  check(options.residual.data == nullptr || same_shape(options.residual, y), "kfuse::linear: residual", [&] {
    return "its shape is " + shape_text(options.residual) + ", but y is " + shape_text(y) + "; give it y's shape";
  });
  check_rows_apart(as_batch(x), "kfuse::linear: x");
  check_rows_apart(as_batch(w), "kfuse::linear: w");
  check_rows_apart(as_batch(y), "kfuse::linear: y");
  check_rows_apart(as_batch(options.residual), "kfuse::linear: residual");

  Span const to = span_of(y), added = span_of(options.residual);
  check(!overlap(to, span_of(x)) && !overlap(to, span_of(w)) && !overlap(to, span_of(options.bias)), "kfuse::linear: y",
        "it overlaps x, w or bias (which would be overwritten while they are read); give it memory of its own");
  check(same_place(to, added) || !overlap(to, added), "kfuse::linear: residual",
        "it overlaps y without being y (other rows would be overwritten before they are read); give y memory of its "
        "own, or exactly that of the residual");
}

template <class Element>
struct LinearPlan {
  LinearPath path;
  Product product;               // what the library does
  LinearEpilogue<Element> rest;  // and what a stage does after it
};

template <class Space, class Element>
LinearPlan<Element> linear_plan(Blas<Space>& blas, Tensor<Element const, 2> const& x, Tensor<Element const, 2> const& w,
                                Tensor<Element, 2> const& y, LinearOptions<Element> const& options) {
  Transpose const transpose_w = options.weight == WeightLayout::out_in ? Transpose::yes : Transpose::no;
  Residual const residual = options.residual.data == nullptr  ? Residual::none
                            : options.residual.data == y.data ? Residual::in_place
                                                              : Residual::elsewhere;
  Product const bare = product(as_batch(x), as_batch(w), transpose_w, as_batch(y));
  LinearEpilogue<Element> const all{options.bias, options.residual, options.activation};
  LinearPath const path =
      linear_path<Space>(bare.element, bare.depth, options.bias.data != nullptr, options.activation, residual);

  if (path == LinearPath::library) {
    Product whole = bare;
    whole.bias = options.bias.data;
    whole.activation = *product_activation(options.activation);
    whole.residual = operand<void const>(as_batch(options.residual));
    if (blas.supports(whole)) return {path, whole, {}};
  }
  if (path != LinearPath::own_kernel) {
    Product part = bare;
    LinearEpilogue<Element> rest = all;
    if (options.activation == Activation::none && Blas<Space>::fuses(bare.element, {.residual = residual})) {
      part.residual = operand<void const>(as_batch(options.residual));
      rest.residual = {};
    }
    if (blas.supports(part)) return {LinearPath::library_then_epilogue, part, rest};
  }
  return {LinearPath::own_kernel, bare, all};
}

}  // namespace impl

// x: [rows, in]; w: [out, in], or [in, out] with WeightLayout::in_out; y: [rows, out]. All are of one element type:
// fp64, fp32, bf16 or fp16. Rows may be strided. y must not overlap x, w or bias. An `in` of zero gives the epilogue of
// zeros. Returns before the work is done.
template <class Space, TensorLike X, TensorLike W, TensorLike Y>
requires Kokkos::is_execution_space_v<Space>
void linear(Space const& space, Blas<Space>& blas, X const& x, W const& w, Y const& y,
            LinearOptions<std::remove_const_t<typename Y::value_type>> const& options = {}) {
  using Element = std::remove_const_t<typename Y::value_type>;
  auto const in = impl::tensor_of<2, Space, Element const>(x, "kfuse::linear", "x");
  auto const weight = impl::tensor_of<2, Space, Element const>(w, "kfuse::linear", "w");
  auto const out = impl::tensor_of<2, Space, Element>(y, "kfuse::linear", "y");
  impl::check_linear(in, weight, out, options);
  if (out.empty()) return;

  auto const plan = impl::linear_plan(blas, in, weight, out, options);
  bool const in_two = plan.path == LinearPath::library_then_epilogue;
  auto stated = options;
  if (in_two) stated.bias = {};
  if (in_two && plan.rest.residual.data) stated.residual = {};
  if (Ledger::state("kfuse::linear", 1, linear_traffic(in, weight, out, stated))) {
    if (plan.path == LinearPath::own_kernel)
      impl::launch_product(space, "kfuse::linear", impl::as_batch(in), impl::as_batch(weight), plan.product.transpose_b,
                           impl::as_batch(out), plan.rest);
    else
      blas.run(space, "kfuse::linear", plan.product);
  }
  if (in_two) fuse(space, "kfuse::linear::epilogue", load(out) | plan.rest | store(out));
}

}  // namespace kfuse

#endif
