// SPDX-License-Identifier: Apache-2.0
// Row operators whose rows, weights and results have different types, on lane groups of 32 and of 64: doubles that
// become 16 bits, and 16 bits beside floats.
#include <kfuse/fused/add_layernorm.hpp>
#include <kfuse/fused/bias_activation.hpp>
#include <kfuse/fused/dropout.hpp>
#include <kfuse/fused/softmax.hpp>
#include <kfuse/fused/swiglu.hpp>

#include <doctest/doctest.h>

#include "operator_lanes.hpp"

namespace {

using kfuse::bf16;
using namespace kfuse::test;

TEST_CASE_TEMPLATE("row operators in mixed types are right on lanes", On, On<32, double, float, bf16>,
                   On<64, bf16, float, float>) {
  using namespace kfuse;
  auto const is_right = [&](char const* name, auto const& run, KnowsRow knows_row = KnowsRow::no) {
    check<On>(name, {1, 33, 56, 512, 1000, 4096, 20000}, run, knows_row);
  };
  is_right(
      "dropout",
      [](auto& a) {
        dropout(a.space, a.in('x'), a.out('y'), {.p = 0, .random = {5, 1}});
      },
      KnowsRow::yes);
  is_right("bias_activation",
           [](auto& a) { bias_activation(a.space, a.in('x'), a.weight('b'), a.out('y'), Activation::relu); });
  is_right("swiglu of two", [](auto& a) { swiglu(a.space, a.in('g'), a.in('u'), a.out('y')); });
  is_right("softmax", [](auto& a) { softmax(a.space, a.in('x'), a.out('y'), {}, a.workspace); });
  is_right("layernorm",
           [](auto& a) { layernorm(a.space, a.in('x'), a.weight('w'), a.weight('b'), a.out('y'), {}, a.workspace); });
  is_right("add_layernorm", [](auto& a) {
    add_layernorm(a.space, a.in('x'), a.in('r'), a.weight('w'), a.weight('b'), a.out('s'), a.out('y'), {}, a.workspace);
  });
}

}  // namespace
