// SPDX-License-Identifier: Apache-2.0
// A call of attention, its definition in double, and how far from it a result may be.
#ifndef KFUSE_TESTS_ATTENTION_HPP
#define KFUSE_TESTS_ATTENTION_HPP

#include <kfuse/fused/attention.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "support.hpp"

namespace kfuse::test {

constexpr double infinity = std::numeric_limits<double>::infinity();

// One call: sizes, masks and values, in the order of the shapes.
struct Problem {
  AttentionShape s;
  Causal causal = Causal::no;
  std::vector<int> lengths = {};         // empty: all keys exist
  std::vector<std::uint8_t> shown = {};  // empty: all are visible
  double scale = 0;
  std::vector<double> q = {}, k = {}, v = {};

  std::size_t q_size() const { return std::size_t(s.batch) * s.heads * s.queries * s.head_dim; }
  std::size_t k_size() const { return std::size_t(s.batch) * s.kv_heads * s.keys * s.head_dim; }
  // The first value of the key `j` of kv head g.
  std::size_t key(int b, int g, int j) const { return ((std::size_t(b) * s.kv_heads + g) * s.keys + j) * s.head_dim; }
  std::size_t query(int b, int h, int i) const { return ((std::size_t(b) * s.heads + h) * s.queries + i) * s.head_dim; }
  int length(int b) const { return lengths.empty() ? s.keys : std::clamp(lengths[b], 0, s.keys); }
};

template <class Element>
Problem random(Problem p, std::uint64_t seed = 1) {
  p.q = random_values<Element>(p.q_size(), seed);
  p.k = random_values<Element>(p.k_size(), seed + 1);
  p.v = random_values<Element>(p.k_size(), seed + 2);
  return p;
}

inline std::vector<double> reference(Problem const& p) {
  AttentionShape const& s = p.s;
  double const scale = p.scale > 0 ? p.scale : 1 / std::sqrt(double(s.head_dim));
  std::vector<double> out(p.q_size(), 0), w(s.keys);
  for (int b = 0; b < s.batch; ++b)
    for (int h = 0; h < s.heads; ++h)
      for (int i = 0; i < s.queries; ++i) {
        int const g = h / (s.heads / s.kv_heads);
        auto const sees = [&](int j) {
          return j < p.length(b) && (p.causal == Causal::no || j <= i + p.length(b) - s.queries) &&
                 (p.shown.empty() || p.shown[b * s.keys + j] != 0);
        };
        double high = -infinity, sum = 0;
        for (int j = 0; j < s.keys; ++j) {
          if (!sees(j)) continue;
          w[j] = 0;
          for (int d = 0; d < s.head_dim; ++d) w[j] += scale * p.q[p.query(b, h, i) + d] * p.k[p.key(b, g, j) + d];
          high = std::max(high, w[j]);
        }
        for (int j = 0; j < s.keys; ++j)
          if (sees(j)) sum += w[j] = std::exp(w[j] - high);
        for (int j = 0; j < s.keys; ++j)
          for (int d = 0; sees(j) && d < s.head_dim; ++d)
            out[p.query(b, h, i) + d] += w[j] / sum * p.v[p.key(b, g, j) + d];
      }
  return out;
}

inline double largest_error(std::vector<double> const& actual, std::vector<double> const& expected) {
  return deviation(actual, expected, 1e300) * 1e300;  // absolute: |expected| is below the floor
}
template <class Element>
constexpr double bound = std::is_same_v<Element, double>  ? 1e-10
                         : std::is_same_v<Element, float> ? 1e-5
                         : std::is_same_v<Element, fp16>  ? 2e-3
                                                          : 2e-2;

}  // namespace kfuse::test

#endif
