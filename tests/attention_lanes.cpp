// SPDX-License-Identifier: Apache-2.0
// The kernels of attention in plain arithmetic as a GPU runs them, lanes and all, on the host.
#include "attention_lanes.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace {

using kfuse::AttentionPath;
using kfuse::bf16;
using kfuse::Causal;
using namespace kfuse::test;

template <class Element, class S>
std::vector<double> attended(Problem const& p, AttentionPath path) {
  return in_both_orders<S>([&](S const& space) {
    AttentionCall<Element> call(p);
    auto const task = call.task();
    kfuse::Workspace<S> workspace(1 << 20);
    kfuse::impl::SegmentMixtures<kfuse::Real<Element>> mixtures;
    if (path == AttentionPath::split_rows) mixtures = kfuse::impl::take_mixtures(workspace, task);
    kfuse::impl::run_attention(space, task, path, mixtures);
    return call.result();
  });
}

TEST_CASE_TEMPLATE("attention in rows is right on lanes, and its segments merge to the same bits", S,
                   SimulatedSpace<32>, SimulatedSpace<64>) {
  auto const check = [](auto element, Problem const& p) {
    using Element = decltype(element);
    auto const rows = attended<Element, S>(p, AttentionPath::rows);
    CHECK(largest_error(rows, reference(p)) <= bound<Element>);
    CHECK(attended<Element, S>(p, AttentionPath::split_rows) == rows);
  };
  for (int const dim : {5, 96, 256}) {
    CAPTURE(dim);
    check(bf16(), random<bf16>({.s = {1, 3, 1, 1, 170, dim}}));
  }
  check(double(), random<double>({.s = {1, 3, 1, 1, 130, 33}}));
  for (auto const causal : {Causal::no, Causal::yes})
    for (bool const masked : {false, true}) {
      CAPTURE(masked);
      check(bf16(), shared_keys<bf16>(2, 140, 40, causal, masked));
    }
  check(float(), shared_keys<float>(5, 3, 16, Causal::yes, false));
}

}  // namespace
