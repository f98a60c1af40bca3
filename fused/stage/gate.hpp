// SPDX-License-Identifier: Apache-2.0
// Gates of gated feed-forward layers (Shazeer 2020): y = activation(gate) * up, and how gate and up lie in memory.
// activation(gate) is not rounded before it is multiplied.
#ifndef KFUSE_FUSED_STAGE_GATE_HPP
#define KFUSE_FUSED_STAGE_GATE_HPP

#include <kfuse/fused/stage/activation.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>

#include <string>
#include <string_view>

namespace kfuse {

// A row of one matrix with both, as one product with both weights leaves them:
//   halves       [ gate | up ]
//   interleaved  g0 u0 g1 u1 ...
enum class GateLayout { halves, interleaved };

struct GateOptions {
  GateLayout layout = GateLayout::halves;
};

// The values activation(gate) * up of interleaved rows. A chain begins with it.
template <Activation activation, class Element, class Memory = void>
struct LoadInterleavedGate {
  using stage = ElementStage;
  using element = Element;
  using memory_space = Memory;
  static constexpr int flops = Activate<activation>::flops + 1;
  static constexpr int extra_registers = Activate<activation>::extra_registers;

  Tensor<Element const, 2> from;  // [rows, 2 * columns]

  Shape shape() const { return {from.extent(0), from.extent(1) / 2}; }
  auto reads() const {
    Span s = span_of(from);
    s.element_bytes = 2 * sizeof(Element);  // a pack of values is read at once
    return std::array{s};
  }
  void check(std::string_view where, Shape shape) const {
    impl::check(shape == this->shape(), where, [&] {
      return impl::name_of(from) + ": " + impl::shape_text(from) + " has no gate and up for each value of " +
             impl::rows_text(shape) + "; give it as many rows of twice as many columns";
    });
  }
  template <class X>
  using Both = Values<typename X::Real, 2 * X::width, X::access>;
  template <class X>
  KOKKOS_FUNCTION auto fetch(Place at) const {
    return kfuse::fetch<Both<X>>(from.at(at.row, std::ptrdiff_t(2) * at.column));
  }
  template <class X, class Fetched>
  KOKKOS_FUNCTION void take(X& x, Fetched const& fetched, Place) const {
    Both<X> both;
    unpack(fetched, both);
#pragma unroll
    for (int i = 0; i < X::width; ++i) x[i] = activate<activation>(both[2 * i]) * both[2 * i + 1];
  }
};

// gate_up: [rows, 2 * columns], interleaved.
template <Activation activation, TensorLike T>
auto load_interleaved_gate(T const& gate_up) {
  return LoadInterleavedGate<activation, impl::ElementOf<T>, typename impl::MemoryOf<T>::type>{
      impl::tensor<2>(gate_up, "kfuse", "load_interleaved_gate")};
}

// The values activation(gate) * up of a product's columns, which are both. What follows a product begins with it.
template <Activation activation>
struct JoinGate {
  using stage = JoinStage;
  static constexpr int flops = Activate<activation>::flops + 1;
  static constexpr int extra_registers = Activate<activation>::extra_registers;

  GateLayout layout;

  void check(std::string_view where, Shape) const {
    impl::check_one_of(layout, GateLayout::interleaved, where, "options.layout");
  }
  ProductPairs product_pairs(int columns) const {
    return layout == GateLayout::halves ? ProductPairs{columns / 2, columns} : ProductPairs{0, 2};
  }
  template <class X>
  KOKKOS_FUNCTION void join(X& x, X const& up) const {
    for (int i = 0; i < X::width; ++i) x[i] = activate<activation>(x[i]) * up[i];
  }
  template <class Element, class F>
  void with_loaded(Tensor<Element, 2> const& product, F const& f) const {
    if (layout == GateLayout::interleaved) return f(impl::as_chain(load_interleaved_gate<activation>(product)));
    int const n = product.extent(1) / 2;
    f(load(columns(product, 0, n)) | Activate<activation>{} | multiply(columns(product, n, n)));
  }
};

template <Activation activation>
JoinGate<activation> gate(GateOptions const& options = {}) {
  return {options.layout};
}

namespace impl {

// y = activation(gate) * up.
template <class Space, Activation activation, TensorLike G, TensorLike U, TensorLike Y>
auto gated_chain(std::string_view where, G const& gate, U const& up, Y const& y) {
  auto const g = tensor_of<2, Space, ElementOf<G> const>(gate, where, "gate");
  auto const u = tensor_of<2, Space, ElementOf<U> const>(up, where, "up");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, where, "y");
  return load(g) | Activate<activation>{} | multiply(u) | store(out);
}

// The same of rows that hold both: f(chain).
template <class Space, Activation activation, TensorLike X, TensorLike Y, class F>
auto with_gated_chain(std::string_view where, X const& gate_up, Y const& y, GateLayout layout, F const& f) {
  auto const both = tensor_of<2, Space, ElementOf<X> const>(gate_up, where, "gate_up");
  auto const out = tensor_of<2, Space, ElementOf<Y>>(y, where, "y");
  check(both.extent(1) % 2 == 0, where, [&] {
    return "gate_up: has " + std::to_string(both.extent(1)) +
           " columns, which hold no gate for each up; give it twice the columns of y";
  });
  check_one_of(layout, GateLayout::interleaved, where, "options.layout");
  if (layout == GateLayout::interleaved) return f(load_interleaved_gate<activation>(both) | store(out));
  int const n = both.extent(1) / 2;
  return f(gated_chain<Space, activation>(where, columns(both, 0, n), columns(both, n, n), out));
}

template <Activation activation, class Space, TensorLike... T>
void gated(Space const& space, std::string const& label, T const&... arguments) {
  fuse(space, label, gated_chain<Space, activation>(label, arguments...));
}
template <Activation activation, class Space, TensorLike X, TensorLike Y>
void gated(Space const& space, std::string const& label, X const& gate_up, Y const& y, GateLayout layout) {
  with_gated_chain<Space, activation>(label, gate_up, y, layout, [&](auto const& chain) { fuse(space, label, chain); });
}
template <class Space, Activation activation, TensorLike X, TensorLike Y>
Traffic gated_traffic(std::string_view where, X const& gate_up, Y const& y, GateLayout layout) {
  return with_gated_chain<Space, activation>(where, gate_up, y, layout,
                                             [](auto const& chain) { return traffic(chain); });
}

}  // namespace impl
}  // namespace kfuse

#endif
