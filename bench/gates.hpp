// SPDX-License-Identifier: Apache-2.0
// What the entries of swiglu, geglu and reglu share. A gate is a struct:
//   static double activation(double)                         by its definition
//   static auto stage()                                      for eager execution
//   static void run(space, gate_up, y, kfuse::GateLayout)    the operator
#ifndef KFUSE_BENCH_GATES_HPP
#define KFUSE_BENCH_GATES_HPP

#include <kfuse/fused/stage/gate.hpp>

#include "bench.hpp"

namespace bench {

template <class Gate, kfuse::GateLayout layout>
struct Gated {
  template <class Element, class Space>
  static Case<Space> make(Memory<Space>& memory, Sizes const& sizes) {
    int const rows = sizes["rows"], inner = sizes["inner"];
    constexpr bool halves = layout == kfuse::GateLayout::halves;
    auto const gate_up = random<Element>(memory, -3, 3, rows, sizes.product({"inner"}, 2));
    auto const y = empty<Element>(memory, rows, inner);

    auto const gated = [=](std::ptrdiff_t r) {
      auto const both = row<Space>(gate_up, r);
      std::vector<double> values(inner);
      for (int c = 0; c < inner; ++c)
        values[c] = Gate::activation(both[halves ? c : 2 * c]) * both[halves ? inner + c : 2 * c + 1];
      return values;
    };
    Case<Space> result{.fused = [=](Context<Space> const& on) { Gate::run(on.space, gate_up, y, layout); },
                       .outputs = {output("y", y, gated, 2)}};
    result.outputs[0].floor = 1;  // where the activation is small, its input's rounding is not
    if (halves)
      result.eager = [=](Context<Space> const& on) {
        auto const gate = kfuse::columns(gate_up, 0, inner), up = kfuse::columns(gate_up, inner, inner);
        kfuse::fuse(on.space, "kfuse::eager::activation", kfuse::load(gate) | Gate::stage() | kfuse::store(y));
        kfuse::fuse(on.space, "kfuse::eager::multiply", kfuse::load(y) | kfuse::multiply(up) | kfuse::store(y));
      };
    return result;
  }
};

}  // namespace bench

#endif
