// SPDX-License-Identifier: Apache-2.0
// A call of attention in host memory, for simulated lanes.
#ifndef KFUSE_TESTS_ATTENTION_LANES_HPP
#define KFUSE_TESTS_ATTENTION_LANES_HPP

#include <kfuse/fused/attention.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

#include "attention.hpp"
#include "simulated_lanes.hpp"

namespace kfuse::test {

// The arguments of a call, and out, which holds NaNs. Each lies on a boundary of 16 bytes.
template <class Element>
class AttentionCall {
 public:
  explicit AttentionCall(Problem const& p)
      : p_(p), q_(encoded(p.q)), k_(encoded(p.k)), v_(encoded(p.v)), out_(p.q.size(), encode<Element>(NAN)) {}

  impl::AttentionTask<Element> task() {
    AttentionShape const& s = p_.s;
    auto const queries = [&](auto& x) { return make_tensor(x.data(), s.batch, s.heads, s.queries, s.head_dim); };
    auto const keys = [&](auto& x) { return make_tensor(x.data(), s.batch, s.kv_heads, s.keys, s.head_dim); };
    AttentionOptions options{.scale = p_.scale, .causal = p_.causal};
    if (!p_.lengths.empty()) options.lengths = make_tensor<int const>(p_.lengths.data(), s.batch);
    if (!p_.shown.empty()) options.visible = make_tensor<std::uint8_t const>(p_.shown.data(), s.batch, s.keys);
    return impl::attention_task<Element>(queries(q_), keys(k_), keys(v_), queries(out_), options);
  }
  std::vector<double> result() const {
    std::vector<double> values;
    for (Element x : out_) values.push_back(decode(x));
    return values;
  }

 private:
  static std::vector<Element> encoded(std::vector<double> const& x) {
    std::vector<Element> y;
    for (double v : x) y.push_back(encode<Element>(v));
    return y;
  }

  Problem const p_;
  std::vector<Element> q_, k_, v_, out_;
};

// Calls in which heads share keys. Of three sequences one has no keys, and of its queries, as of those before the first
// key, all see nothing. With `masked`, keys are hidden: each third one, and all of the last sequence.
template <class Element>
Problem shared_keys(int queries, int keys, int head_dim, Causal causal, bool masked) {
  Problem p{.s = {3, 4, 2, queries, keys, head_dim}, .causal = causal, .lengths = {keys / 2 + 7, 0, keys}};
  if (masked)
    for (int i = 0; i < 3 * keys; ++i) p.shown.push_back(i % 3 != 1 && i < 2 * keys);
  return random<Element>(p, queries + head_dim);
}

}  // namespace kfuse::test

#endif
