// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/geglu.hpp>

#include <cmath>

#include "gates.hpp"

namespace {

using kfuse::GateLayout;

struct GeGlu {
  static double activation(double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }
  static auto stage() { return kfuse::gelu(); }
  template <class Space, class X, class Y>
  static void run(Space const& space, X const& gate_up, Y const& y, GateLayout layout) {
    kfuse::geglu(space, gate_up, y, {.layout = layout});
  }
};

struct ByTanh {
  static double activation(double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  }
  static auto stage() { return kfuse::gelu_tanh(); }
  template <class Space, class X, class Y>
  static void run(Space const& space, X const& gate_up, Y const& y, GateLayout layout) {
    kfuse::geglu(space, gate_up, y, {.layout = layout, .approximate = kfuse::GeluApproximate::tanh});
  }
};

bench::Sizes const sizes{{"rows", 8192}, {"inner", 14336}};
std::vector<bench::Bar> const bars{{.at_least = 0.99}};

bench::Register<bench::Gated<GeGlu, GateLayout::halves>> const entry("geglu",
                                                                     "y = gelu(gate) * up, of rows [gate | up]", sizes,
                                                                     bars);
bench::Register<bench::Gated<GeGlu, GateLayout::interleaved>> const interleaved(
    "geglu_interleaved", "y = gelu(gate) * up, of rows gate, up, gate, up, ...", sizes, bars);
bench::Register<bench::Gated<ByTanh, GateLayout::halves>> const by_tanh("geglu_tanh",
                                                                        "y = gelu_tanh(gate) * up, of rows [gate | up]",
                                                                        sizes, bars);

}  // namespace
