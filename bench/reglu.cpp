// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/reglu.hpp>

#include <cmath>

#include "gates.hpp"

namespace {

using kfuse::GateLayout;

struct ReGlu {
  static double activation(double x) { return x < 0 ? 0 : x; }
  static auto stage() { return kfuse::relu(); }
  template <class Space, class X, class Y>
  static void run(Space const& space, X const& gate_up, Y const& y, GateLayout layout) {
    kfuse::reglu(space, gate_up, y, {.layout = layout});
  }
};

bench::Sizes const sizes{{"rows", 8192}, {"inner", 14336}};
std::vector<bench::Bar> const bars{{.at_least = 0.99}};

bench::Register<bench::Gated<ReGlu, GateLayout::halves>> const entry("reglu",
                                                                     "y = relu(gate) * up, of rows [gate | up]", sizes,
                                                                     bars);
bench::Register<bench::Gated<ReGlu, GateLayout::interleaved>> const interleaved(
    "reglu_interleaved", "y = relu(gate) * up, of rows gate, up, gate, up, ...", sizes, bars);

}  // namespace
