// SPDX-License-Identifier: Apache-2.0
// The angles of rotary position embeddings, in double: at position p, pair i is turned by p * inverse[i], and cosine
// and sine are multiplied by attention_scaling. (In half precision there are no odd positions above 2048, and at
// position 1,000,000 the rounding of a float angle is up to 0.03.)
#ifndef KFUSE_FUSED_ROPE_FREQUENCIES_HPP
#define KFUSE_FUSED_ROPE_FREQUENCIES_HPP

#include <kfuse/fused/rope_settings.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <utility>
#include <variant>
#include <vector>

namespace kfuse {

struct RopeFrequencies {
  std::vector<double> inverse;   // [rotary_dim / 2]: radians per position of each pair
  double attention_scaling = 1;  // of cosines and sines

  int rotary_dim() const { return 2 * int(inverse.size()); }
};

namespace impl {

// The plain frequencies, f(i).
inline std::vector<double> plain_frequencies(double theta, int rotary_dim) {
  std::vector<double> f(std::size_t(rotary_dim) / 2);
  for (std::size_t i = 0; i < f.size(); ++i) f[i] = std::pow(theta, -2 * double(i) / rotary_dim);
  return f;
}

inline RopeFrequencies scaled(std::monostate, RopeSettings const& s, std::int64_t) {
  return {plain_frequencies(s.theta, s.rotary_dim)};
}

inline RopeFrequencies scaled(LinearScaling const& linear, RopeSettings const& s, std::int64_t) {
  auto f = plain_frequencies(s.theta, s.rotary_dim);
  for (double& v : f) v /= linear.factor;
  return {std::move(f)};
}

inline RopeFrequencies scaled(DynamicScaling const& dynamic, RopeSettings const& s, std::int64_t length) {
  double const stretch = std::max(1.0, double(length) / dynamic.original_max_positions);
  double const growth = dynamic.factor * stretch - (dynamic.factor - 1);
  return {plain_frequencies(s.theta * std::pow(growth, s.rotary_dim / (s.rotary_dim - 2.0)), s.rotary_dim)};
}

inline RopeFrequencies scaled(Llama3Scaling const& llama, RopeSettings const& s, std::int64_t) {
  auto f = plain_frequencies(s.theta, s.rotary_dim);
  for (double& v : f) {
    double const turns = llama.original_max_positions / (2 * std::numbers::pi / v);  // within the original positions
    double const kept =
        (turns - llama.low_frequency_factor) / (llama.high_frequency_factor - llama.low_frequency_factor);
    if (turns < llama.low_frequency_factor)
      v /= llama.factor;
    else if (turns <= llama.high_frequency_factor)
      v = (1 - kept) * v / llama.factor + kept * v;
  }
  return {std::move(f)};
}

// Of yarn: the pair, as a fraction, that turns so many times within the original positions.
inline double pair_that_turns(double times, YarnScaling const& yarn, RopeSettings const& s) {
  return s.rotary_dim * std::log(yarn.original_max_positions / (times * 2 * std::numbers::pi)) /
         (2 * std::log(s.theta));
}

inline double attention_scaling(YarnScaling const& yarn) {
  auto const scale = [&](double m) { return yarn.factor <= 1 ? 1 : 0.1 * m * std::log(yarn.factor) + 1; };
  if (yarn.attention_factor) return *yarn.attention_factor;
  return yarn.mscale > 0 && yarn.mscale_all_dim > 0 ? scale(yarn.mscale) / scale(yarn.mscale_all_dim) : scale(1);
}

inline RopeFrequencies scaled(YarnScaling const& yarn, RopeSettings const& s, std::int64_t) {
  auto f = plain_frequencies(s.theta, s.rotary_dim);
  double low = pair_that_turns(yarn.beta_fast, yarn, s), high = pair_that_turns(yarn.beta_slow, yarn, s);
  if (yarn.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, s.rotary_dim - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < f.size(); ++i) {
    double const stretched = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    f[i] = f[i] / yarn.factor * stretched + f[i] * (1 - stretched);
  }
  return {std::move(f), attention_scaling(yarn)};
}

inline RopeFrequencies scaled(LongRopeScaling const& rope, RopeSettings const& s, std::int64_t length) {
  auto f = plain_frequencies(s.theta, s.rotary_dim);
  auto const& factors = length > rope.original_max_positions ? rope.long_factor : rope.short_factor;
  for (std::size_t i = 0; i < f.size(); ++i) f[i] /= factors[i];
  double const by_length =
      rope.factor <= 1 ? 1 : std::sqrt(1 + std::log(rope.factor) / std::log(double(rope.original_max_positions)));
  return {std::move(f), rope.attention_factor.value_or(by_length)};
}

}  // namespace impl

// The frequencies for sequences of `length` positions; they depend on it with dynamic and longrope alone. Throws
// kfuse::Error for settings that make no frequencies.
inline RopeFrequencies rope_frequencies(RopeSettings const& settings, std::int64_t length) {
  impl::RopeChecks(settings, "rope_frequencies").all();
  impl::check(length >= 0, "rope_frequencies", "length is negative; give the number of positions");
  return std::visit([&](auto const& scaling) { return impl::scaled(scaling, settings, length); }, settings.scaling);
}

// [rotary_dim]: the cosines of all pairs at a position, and then the sines.
inline std::vector<double> rope_table_row(RopeFrequencies const& frequencies, std::int64_t position) {
  std::size_t const half = frequencies.inverse.size();
  std::vector<double> row(2 * half);
  for (std::size_t i = 0; i < half; ++i) {
    double const angle = double(position) * frequencies.inverse[i];
    row[i] = frequencies.attention_scaling * std::cos(angle);
    row[half + i] = frequencies.attention_scaling * std::sin(angle);
  }
  return row;
}

}  // namespace kfuse

#endif
