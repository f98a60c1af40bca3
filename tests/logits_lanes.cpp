// SPDX-License-Identifier: Apache-2.0
// Losses and searches of logits, on lane groups of 32 and of 64.
#include <kfuse/fused/argmax.hpp>
#include <kfuse/fused/cross_entropy.hpp>
#include <kfuse/fused/top_k.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "operator_lanes.hpp"

namespace {

using kfuse::bf16;
using namespace kfuse::test;

TEST_CASE_TEMPLATE("argmax and top_k are right on lanes", On, On<32, float>, On<64, bf16>, On<32, double>) {
  using namespace kfuse;
  std::vector<int> const widths{1, 33, 56, 512, 1000, 4096, 140000 / int(sizeof(typename On::Element))};
  auto const is_right = [&](char const* name, auto const& run) { check<On>(name, widths, run); };
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
