// SPDX-License-Identifier: Apache-2.0
// Norms and softmaxes, on lane groups of 32 and of 64.
#include <kfuse/fused/add_layernorm.hpp>
#include <kfuse/fused/add_rmsnorm.hpp>
#include <kfuse/fused/layernorm.hpp>
#include <kfuse/fused/log_softmax.hpp>
#include <kfuse/fused/rmsnorm.hpp>
#include <kfuse/fused/softmax.hpp>

#include <doctest/doctest.h>

#include <vector>

#include "operator_lanes.hpp"

namespace {

using kfuse::bf16;
using namespace kfuse::test;

// Each line is an operator. `a` makes its arguments.
TEST_CASE_TEMPLATE("norms and softmaxes are right on lanes", On, On<32, float>, On<64, bf16>, On<32, double>) {
  using namespace kfuse;
  // Parts of a lane group to a row, whole groups, teams, passes; rows that allow wide access and rows that do not.
  std::vector<int> const widths{1, 33, 56, 512, 1000, 4096, 140000 / int(sizeof(typename On::Element))};
  auto const is_right = [&](char const* name, auto const& run) { check<On>(name, widths, run); };
  is_right("rmsnorm", [](auto& a) { rmsnorm(a.space, a.in('x'), a.weight('w'), a.out('y'), {}, a.workspace); });
  is_right("add_rmsnorm", [](auto& a) {
    add_rmsnorm(a.space, a.in('x'), a.in('r'), a.weight('w'), a.out('s'), a.out('y'), {}, a.workspace);
  });
  is_right("layernorm",
           [](auto& a) { layernorm(a.space, a.in('x'), a.weight('w'), a.weight('b'), a.out('y'), {}, a.workspace); });
  is_right("add_layernorm", [](auto& a) {
    add_layernorm(a.space, a.in('x'), a.in('r'), a.weight('w'), a.weight('b'), a.out('s'), a.out('y'), {}, a.workspace);
  });
  is_right("softmax", [](auto& a) { softmax(a.space, a.in('x'), a.out('y'), {}, a.workspace); });
  is_right("softmax, masked", [](auto& a) { softmax(a.space, a.in('x'), a.mask('m'), a.out('y'), {}, a.workspace); });
  is_right("softmax, causal, with a sink", [](auto& a) {
    Tensor<typename On::Element const, 1> const sink{a.table('s', 1, 1).data, {1}, {1}};
    SoftmaxOptions<typename On::Element> const options{
        .causal = CausalVariant::lower_right, .sinks = sink, .queries = 1};
    softmax(a.space, a.in('x'), a.out('y'), options, a.workspace);
  });
  is_right("log_softmax", [](auto& a) { log_softmax(a.space, a.in('x'), a.out('y'), a.workspace); });
}

}  // namespace
