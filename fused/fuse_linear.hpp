// SPDX-License-Identifier: Apache-2.0
// fuse_linear: a projection between two chains.
//
//   y = epilogue(prologue(x) w^T)
//
//   fuse_linear(space, blas, workspace, "user::out", load(x) | rmsnorm(scale), w, add(residual) | store(y));
//   fuse_linear(space, blas, workspace, "user::up", load(x), gate_up, gate<Activation::silu>() | store(y));
//   fuse_linear(space, blas, workspace, "user::qkv", load(x), w,
//               rope(table, positions, {.head_dim = 128, .columns = 5120}) | store_qkv(q, keys, values, positions, 1));
//
// One launch for up to 16 rows, bound by reading the weight; there a row's bits do not depend on how many
// rows there are. Otherwise the prologue (if it does more than load), the product by the matrix library and the
// epilogue (if it does more than store) are a launch each, with the values between them rounded to the weight's element
// type in memory of the workspace. So it is for more rows, for a weight as [in, out], and for chains that do not fit
// into one kernel with a product: with more than 448 bytes of arguments; where a stage takes columns in pairs that it
// does not state, or in groups of the prologue's columns that 16 bytes of the weight straddle. fuse_linear_path says
// which.
#ifndef KFUSE_FUSED_FUSE_LINEAR_HPP
#define KFUSE_FUSED_FUSE_LINEAR_HPP

#include <kfuse/core/few_rows_product.hpp>
#include <kfuse/core/workspace.hpp>
#include <kfuse/fused/linear.hpp>

#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>

namespace kfuse {

struct FuseLinearOptions {
  WeightLayout layout = WeightLayout::out_in;
  // constant: the weight, and vectors by column that `before` has (as that of a norm), may be read while earlier work
  // on the space still runs, which hides how a launch begins.
  WeightsAre weights = WeightsAre::written_before;
};

enum class FuseLinearPath { few_rows, library };

namespace impl {

constexpr int few_rows = 16;

// fits: can both chains be part of one kernel?
constexpr FuseLinearPath fuse_linear_path(std::ptrdiff_t rows, WeightLayout layout, bool fits) {
  return rows <= few_rows && layout == WeightLayout::out_in && fits ? FuseLinearPath::few_rows
                                                                    : FuseLinearPath::library;
}
// What of that is known when the chains are: `columns` of the product.
template <class Element, class P, class E>
bool fits(P const& prologue, E const& epilogue, int columns) {
  ProductPairs const pairs = pairs_of(epilogue, columns, 2);
  bool const in_pairs = pairs.group > 0 && pairs.group % 2 == 0 && pairs.distance >= 0 &&
                        pairs.distance <= pairs.group / 2 && (!joins_pairs<E> || columns % pairs.group == 0);
  return in_pairs && is_in_groups(prologue, 16 / int(sizeof(Element)));
}

// A chain from memory to values, or from values to memory, that does nothing else.
template <class C, class Element>
constexpr bool is_bare_load = false;
template <class Element, class Memory>
constexpr bool is_bare_load<Chain<Load<Element, Memory>>, Element> = true;
template <class C, class Element>
constexpr bool is_bare_store = false;
template <class Element, class Memory>
constexpr bool is_bare_store<Chain<Store<Element, Memory>>, Element> = true;

// What is written must not be what all outputs are made from, nor what stages raise.
template <class P, class E>
void check_outputs_apart(P const& prologue, Span const& w, E const& epilogue, std::string_view where) {
  auto const check_apart = [&](Span const& to, Span const& from) {
    check(!overlap(to, from), where, [&] {
      return name_of(to, "an output") + ": overlaps " + name_of(from, "an input") +
             ", which all outputs are made from (it would be overwritten while it is read); give it memory of its own";
    });
  };
  for_each_stage(joined(prologue, epilogue), [&](auto const& s) { check_apart(span_of_status(s), w); });
  for_each_stage(epilogue, [&](auto const& writer) {
    for (Span const& to : writes(writer)) {
      check_apart(to, w);
      for_each_stage(prologue, [&](auto const& reader) {
        for (Span const& from : reads(reader)) check_apart(to, from);
      });
    }
  });
  check_values_apart(joined(prologue, epilogue), where);
}

// What is refused before anything is launched. Returns the shape of the results.
template <class Space, class P, class Element, class E>
Shape check_fuse_linear(P const& prologue, Tensor<Element const, 2> const& w, E const& epilogue,
                        FuseLinearOptions const& options, std::string_view where) {
  Shape const of_x = shape_of(prologue, where);
  check_one_of(options.layout, WeightLayout::in_out, where, "options.layout");
  check_one_of(options.weights, WeightsAre::constant, where, "options.weights");
  bool const out_in = options.layout == WeightLayout::out_in;
  int const out = w.extent(out_in ? 0 : 1), in = w.extent(out_in ? 1 : 0);
  check(of_x.columns == in, where, [&] {
    return "w: its shape " + shape_text(w) + ", taken as " + (out_in ? "[out, in]" : "[in, out]") +
           ", does not fit the prologue's " + rows_text(of_x) + "; is the other WeightLayout meant?";
  });
  check(of_x.rows <= std::numeric_limits<int>::max(), where, "more than 2^31 - 1 rows; call it for parts of the rows");
  check(in <= largest_columns && out <= largest_columns, where, [&] {
    return "w: " + shape_text(w) +
           " has an extent of more than 2^31 - 2^16 (columns are counted in int); call it for parts of the weight";
  });
  check(!joins_pairs<E> || out % 2 == 0, where, [&] {
    return "w: its " + std::to_string(out) +
           " outputs are not a gate and an up for each value; give it an even number of them";
  });
  check_rows_apart(as_batch(w), std::string(where) + ": w");
  Shape const shape{of_x.rows, joins_pairs<E> ? out / 2 : out};
  check_reach<Space>(prologue, where);
  check_reach<Space>(epilogue, where);
  check_chain(prologue, where, of_x);
  check_chain(epilogue, where, shape);
  check_outputs_apart(prologue, span_of(w), epilogue, where);
  return shape;
}

// f(x, launch): what is multiplied, and what makes it.
template <class Element, class Space, class P, class F>
void with_operand(Space const& space, Workspace<Space>& workspace, std::string const& label, P const& prologue,
                  Shape shape, F const& f) {
  if constexpr (is_bare_load<P, Element>)
    if (auto const& x = prologue.first.from; x.extent(0) == 1 || x.stride(0) >= x.extent(1)) return f(x, [] {});
  auto const x = workspace.template take<Element>(label, int(shape.rows), shape.columns);
  Fusion const fusion(space, label + "::prologue", prologue | store(x));  // of rows that overlap, a copy, too
  f(Tensor<Element const, 2>(x), [&] { fusion.launch(); });
}
// f(product, launch): where the product goes, and what follows it there.
template <class Element, class Space, class E, class F>
void with_product(Space const& space, Workspace<Space>& workspace, std::string const& label, E const& epilogue,
                  Shape shape, F const& f) {
  if constexpr (is_bare_store<E, Element>) {
    f(epilogue.first.to, [] {});
  } else {
    auto const product = workspace.template take<Element>(label, int(shape.rows), shape.columns);
    auto const follow = [&](auto const& chain) {
      Fusion const fusion(space, label + "::epilogue", chain);
      f(product, [&] { fusion.launch(); });
    };
    if constexpr (joins_pairs<E>)
      epilogue.first.with_loaded(product, [&](auto const& values) { follow(values | epilogue.rest); });
    else
      follow(load(product) | epilogue);
  }
}

// The launches of the other path. All are checked and have their memory before the first is made.
template <class Space, class P, class Element, class E>
void linear_by_library(Space const& space, Blas<Space>& blas, Workspace<Space>& workspace, std::string const& label,
                       P const& prologue, Tensor<Element const, 2> const& w, E const& epilogue, int rows,
                       WeightLayout layout) {
  auto const scope = workspace.scope();
  workspace.check_memory(label);
  bool const out_in = layout == WeightLayout::out_in;
  Shape const of_x{rows, w.extent(out_in ? 1 : 0)}, of_product{rows, w.extent(out_in ? 0 : 1)};
  with_operand<Element>(space, workspace, label, prologue, of_x, [&](auto const& x, auto const& make_x) {
    with_product<Element>(space, workspace, label, epilogue, of_product, [&](auto const& product, auto const& follow) {
      make_x();
      linear(space, blas, x, w, product, {.weight = layout});
      follow();
    });
  });
}

}  // namespace impl

// Every argument moves once; the flops are those of the product and of the stages. Arguments as of fuse_linear.
template <StageOrChain Before, TensorLike W, StageOrChain After>
Traffic fuse_linear_traffic(Before const& before, W const& w, After const& after,
                            WeightLayout layout = WeightLayout::out_in) {
  auto const& prologue = impl::as_chain(before);
  auto const& epilogue = impl::as_chain(after);
  auto const weight = impl::tensor<2>(w, "kfuse::fuse_linear", "w");
  Shape const of_x = impl::shape_of(prologue, "kfuse::fuse_linear");
  int const out = weight.extent(layout == WeightLayout::out_in ? 0 : 1);
  bool const joins = impl::joins_pairs<std::remove_cvref_t<decltype(epilogue)>>;
  Traffic sum = traffic(prologue, of_x) + traffic(epilogue, Shape{of_x.rows, joins ? out / 2 : out});
  sum.bytes_read += std::size_t(weight.size()) * sizeof(typename W::value_type);
  sum.flops += 2 * std::size_t(of_x.rows) * std::size_t(weight.size());
  return sum;
}

// before: stages from load(x) on, over [rows, in], which do not write; their values are rounded to w's element type.
// w: [out, in], or [in, out] with WeightLayout::in_out, of fp64, fp32, bf16 or fp16.
// after: stages on the product, [rows, out], or [rows, out / 2] from a gate on, that reduce nothing and end in a store.
// What they write must not overlap w or what `before` reads.
//
// `label` is what profilers show (but for the product by the library, which is kfuse::linear) and what errors begin
// with. An `in` of zero gives `after` of zeros. Returns before the
// work is done; allocates nothing and waits for nothing. Throws kfuse::Error before anything is launched or written.
template <class Space, StageOrChain Before, TensorLike W, StageOrChain After>
requires Kokkos::is_execution_space_v<Space>
void fuse_linear(Space const& space, Blas<Space>& blas, Workspace<Space>& workspace, std::string const& label,
                 Before const& before, W const& w, After const& after, FuseLinearOptions const& options = {}) {
  using Element = std::remove_const_t<typename W::value_type>;
  auto const& prologue = impl::as_chain(before);
  auto const& epilogue = impl::as_chain(after);
  using P = std::remove_cvref_t<decltype(prologue)>;
  using E = std::remove_cvref_t<decltype(epilogue)>;
  static_assert((impl::chain_reaches<Space, P> && impl::chain_reaches<Space, E>),
                "kfuse: the execution space cannot reach the memory of a View in these chains");
  static_assert(!impl::ChainTypes<P>::writes, "kfuse: what comes before a product must not write");
  static_assert(impl::joins_first<E>, "kfuse: what joins a product's columns, a gate, comes first after it");
  static_assert(impl::ChainTypes<E>::has_stores, "kfuse: what follows a product must end in store(y)");
  static_assert(impl::ChainTypes<E>::row_stages == 0, "kfuse: what follows a product must not reduce its rows");
  auto const weight = impl::tensor_of<2, Space, Element const>(w, label, "w");
  Shape const shape = impl::check_fuse_linear<Space>(prologue, weight, epilogue, options, label);
  if (shape.rows == 0 || shape.columns == 0) return;

  if constexpr (impl::fits_few_rows<P, E>) {
    bool const fits = impl::fits<Element>(prologue, epilogue, weight.extent(0));
    if (impl::fuse_linear_path(shape.rows, options.layout, fits) == FuseLinearPath::few_rows) {
      if (Ledger::state(label, 1, fuse_linear_traffic(prologue, weight, epilogue)))
        impl::launch_few_rows<impl::FewRowsUnit<Space>>(space, label, prologue, weight, epilogue, int(shape.rows),
                                                        options.weights);
      return;
    }
  }
  impl::linear_by_library(space, blas, workspace, label, prologue, weight, epilogue, int(shape.rows), options.layout);
}

}  // namespace kfuse

#endif
