// SPDX-License-Identifier: Apache-2.0
// Several calls of one operator as one case.
#ifndef KFUSE_BENCH_CALLS_HPP
#define KFUSE_BENCH_CALLS_HPP

#include <string>
#include <utility>
#include <vector>

#include "bench.hpp"

namespace bench {

template <class Space>
Work<Space> one_after_another(std::vector<Case<Space>> const& cases, Work<Space> Case<Space>::*work) {
  if (!(cases.front().*work)) return {};
  return [=](Context<Space> const& on) {
    for (auto const& each : cases) (each.*work)(on);
  };
}

// `calls` cases of make(), one after another, each on memory of its own: what one call leaves in the cache is nothing
// that the next one reads.
template <class Space, class F>
Case<Space> several_calls(int calls, F const& make) {
  if (calls == 1) return make();
  std::vector<Case<Space>> cases;
  for (int i = 0; i < calls; ++i) cases.push_back(make());
  Case<Space> all{.fused = one_after_another(cases, &Case<Space>::fused),
                  .eager = one_after_another(cases, &Case<Space>::eager),
                  .path = cases.front().path,
                  .layers = calls,
                  .restore = one_after_another(cases, &Case<Space>::restore)};
  for (int i = 0; i < calls; ++i)
    for (Output output : cases[i].outputs) {
      output.name += " of call " + std::to_string(i);
      all.outputs.push_back(std::move(output));
    }
  return all;
}

}  // namespace bench

#endif
