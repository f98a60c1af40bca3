// SPDX-License-Identifier: Apache-2.0
// Row operators that reduce, on lane groups of 32 and of 64.
#include <kfuse/fused/add_layernorm.hpp>
#include <kfuse/fused/add_rmsnorm.hpp>
#include <kfuse/fused/argmax.hpp>
#include <kfuse/fused/cross_entropy.hpp>
#include <kfuse/fused/layernorm.hpp>
#include <kfuse/fused/log_softmax.hpp>
#include <kfuse/fused/rmsnorm.hpp>
#include <kfuse/fused/softmax.hpp>
#include <kfuse/fused/top_k.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "operator_lanes.hpp"

namespace {

using kfuse::bf16;
using namespace kfuse::test;

// Each line is an operator. `a` makes its arguments.
TEST_CASE_TEMPLATE("row operators that reduce are right on lanes", On, On<32, float>, On<64, bf16>) {
  using namespace kfuse;
  // Parts of a lane group to a row, whole groups, teams, passes; rows that allow wide access and rows that do not.
  std::vector<int> const widths{1, 33, 56, 512, 1000, 4096, sizeof(typename On::Element) == 2 ? 70000 : 35000};
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
  is_right("argmax",
           [](auto& a) { argmax(a.space, a.in('x'), make_tensor(a.out_indices('i').data, a.rows), a.workspace); });
  is_right("top_k", [](auto& a) {
    int const k = std::min(a.columns, 6);
    top_k(a.space, a.in('x'), a.out('v', k), a.out_indices('i', k));
  });
}

// Losses are numbers of another type than the logits.
TEST_CASE_TEMPLATE("cross_entropy is right on lanes", On, On<32, float>, On<64, bf16>, On<64, double>) {
  using namespace kfuse;
  using Value = Real<typename On::Element>;
  for (double const smoothing : {0.0, 0.1})
    check<On>("cross_entropy", {1, 33, 1000, 8200, 40000}, [&](auto& a) {
      auto const loss = a.workspace.template take<Value>("losses", a.rows);
      cross_entropy(a.space, a.in('x'), a.indices('l', a.columns), loss, a.out('g'),
                    {.reduction = Reduction::none, .label_smoothing = smoothing, .z_loss = 0.01}, a.workspace);
      fuse(a.space, "losses", load(Tensor<Value, 2>{loss.data, {a.rows, 1}, {1, 1}}) | store(a.out('y', 1)));
    });
}

}  // namespace
