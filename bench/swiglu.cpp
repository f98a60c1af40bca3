// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/swiglu.hpp>

#include <cmath>

#include "gates.hpp"

namespace {

using kfuse::GateLayout;

struct SwiGlu {
  static double activation(double x) { return x / (1 + std::exp(-x)); }
  static auto stage() { return kfuse::silu(); }
  template <class Space, class X, class Y>
  static void run(Space const& space, X const& gate_up, Y const& y, GateLayout layout) {
    kfuse::swiglu(space, gate_up, y, {.layout = layout});
  }
};

bench::Sizes const sizes{{"rows", 8192}, {"inner", 14336}};
std::vector<bench::Bar> const bars{{.at_least = 0.99}};

bench::Register<bench::Gated<SwiGlu, GateLayout::halves>> const entry("swiglu",
                                                                      "y = silu(gate) * up, of rows [gate | up]", sizes,
                                                                      bars);
bench::Register<bench::Gated<SwiGlu, GateLayout::interleaved>> const interleaved(
    "swiglu_interleaved", "y = silu(gate) * up, of rows gate, up, gate, up, ...", sizes, bars);

}  // namespace
