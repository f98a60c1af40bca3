// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/swiglu.hpp>

#include <cmath>

#include "bench.hpp"

namespace {

struct SwiGlu {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], inner = sizes["inner"];
    auto const gate_up = bench::random<Element>(memory, -3, 3, rows, sizes.product({"inner"}, 2));
    auto const gate = kfuse::columns(gate_up, 0, inner), up = kfuse::columns(gate_up, inner, inner);
    auto const y = bench::empty<Element>(memory, rows, inner);

    auto const gated = [=](std::ptrdiff_t r) {
      auto values = bench::row<Space>(gate_up, r);
      for (int c = 0; c < inner; ++c) values[c] *= values[inner + c] / (1 + std::exp(-values[c]));
      values.resize(inner);
      return values;
    };
    return {.fused = [=](bench::Context<Space> const& on) { kfuse::swiglu(on.space, gate_up, y); },
            .eager =
                [=](bench::Context<Space> const& on) {
                  kfuse::fuse(on.space, "kfuse::eager::silu", kfuse::load(gate) | kfuse::silu() | kfuse::store(y));
                  kfuse::fuse(on.space, "kfuse::eager::multiply",
                              kfuse::load(y) | kfuse::multiply(up) | kfuse::store(y));
                },
            .outputs = {bench::output("y", y, gated, 2)}};
  }
};

bench::Register<SwiGlu> const entry("swiglu", "y = silu(gate) * up, of rows [gate | up]",
                                    {{"rows", 8192}, {"inner", 14336}});

}  // namespace
