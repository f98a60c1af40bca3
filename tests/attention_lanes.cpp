// SPDX-License-Identifier: Apache-2.0
// The kernels of attention in plain arithmetic as a GPU runs them, lanes and all, on the host.
#include <doctest/doctest.h>

#include <vector>

#include "attention.hpp"
#include "simulated_lanes.hpp"

namespace {

using kfuse::AttentionPath;
using kfuse::AttentionShape;
using kfuse::bf16;
using kfuse::Causal;
using namespace kfuse::test;

// The result on memory that held NaNs.
template <class Element, class S>
std::vector<double> attended(Problem const& p, AttentionPath path) {
  AttentionShape const& s = p.s;
  auto const encoded = [](std::vector<double> const& x) {
    std::vector<Element> y;
    for (double v : x) y.push_back(encode<Element>(v));
    return y;
  };
  auto q = encoded(p.q), k = encoded(p.k), v = encoded(p.v), out = encoded(std::vector<double>(p.q.size(), NAN));
  auto const queries = [&](auto& x) { return kfuse::make_tensor(x.data(), s.batch, s.heads, s.queries, s.head_dim); };
  auto const keys = [&](auto& x) { return kfuse::make_tensor(x.data(), s.batch, s.kv_heads, s.keys, s.head_dim); };
  auto const task =
      kfuse::impl::attention_task<Element>(queries(q), keys(k), keys(v), queries(out), {.causal = p.causal});
  kfuse::Workspace<S> workspace(1 << 20);
  bool const split = path == AttentionPath::split_rows;
  kfuse::impl::run_attention(
      S(), task, path,
      split ? kfuse::impl::take_mixtures(workspace, task) : kfuse::impl::SegmentMixtures<kfuse::Real<Element>>{});
  std::vector<double> result;
  for (Element x : out) result.push_back(decode(x));
  return result;
}

TEST_CASE_TEMPLATE("attention is right on simulated lanes", S, SimulatedSpace<32>, SimulatedSpace<64>) {
  for (int const dim : {5, 96, 256}) {
    CAPTURE(dim);
    auto p = random<bf16>({.s = {1, 3, 1, 2, 170, dim}, .causal = Causal::yes});
    auto const rows = attended<bf16, S>(p, AttentionPath::rows);
    CHECK(largest_error(rows, reference(p)) <= bound<bf16>);
    CHECK(attended<bf16, S>(p, AttentionPath::split_rows) == rows);
    p = random<double>(p);
    CHECK(largest_error(attended<double, S>(p, AttentionPath::rows), reference(p)) <= bound<double>);
  }
}

}  // namespace
