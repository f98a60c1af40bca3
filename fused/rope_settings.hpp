// SPDX-License-Identifier: Apache-2.0
// What the angles of rotary position embeddings are made from (rope_frequencies.hpp makes them). Settings are named as
// Hugging Face names them (config.json's rope_theta and rope_scaling), and mean the same.
#ifndef KFUSE_FUSED_ROPE_SETTINGS_HPP
#define KFUSE_FUSED_ROPE_SETTINGS_HPP

#include <kfuse/core/check.hpp>

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace kfuse {

// How a model that was trained on `original_max_positions` positions serves longer sequences. With f(i) =
// theta^(-2 i / rotary_dim), the plain frequency of pair i (Su et al. 2021):

// linear (Chen et al. 2023, position interpolation): f(i) / factor
struct LinearScaling {
  double factor = 1;
  friend bool operator==(LinearScaling const&, LinearScaling const&) = default;
};

// dynamic (NTK-aware, 2023): f(i) of a larger theta where the sequence is longer than the original, else f(i):
//   theta (factor length / original_max_positions - (factor - 1))^(rotary_dim / (rotary_dim - 2))
struct DynamicScaling {
  double factor = 1;
  int original_max_positions = 0;
  friend bool operator==(DynamicScaling const&, DynamicScaling const&) = default;
};

// llama3 (Llama 3.1, 2024), in three bands of wavelength w = 2 pi / f(i), in positions:
//   w < original_max_positions / high_frequency_factor   f(i)
//   w > original_max_positions / low_frequency_factor    f(i) / factor
//   in between                                           linear blend of the two
struct Llama3Scaling {
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int original_max_positions = 8192;
  friend bool operator==(Llama3Scaling const&, Llama3Scaling const&) = default;
};

// yarn (Peng et al. 2023): pairs that turn more than beta_fast times within the original positions keep f(i), those
// that turn less than beta_slow times have f(i) / factor, and in between, by the number of the pair, a linear blend of
// the two. Cosines and sines are multiplied by 0.1 ln(factor) + 1, if not by attention_factor.
struct YarnScaling {
  double factor = 1;
  int original_max_positions = 0;
  double beta_fast = 32, beta_slow = 1;
  std::optional<double> attention_factor = {};
  // If both are given: multiplied by (0.1 mscale ln(factor) + 1) / (0.1 mscale_all_dim ln(factor) + 1) instead.
  double mscale = 0, mscale_all_dim = 0;
  bool truncate = true;  // the blend begins and ends at whole pairs
  friend bool operator==(YarnScaling const&, YarnScaling const&) = default;
};

// longrope (Ding et al. 2024): f(i) / long_factor[i] where the sequence is longer than the original, else
// f(i) / short_factor[i]. Cosines and sines are multiplied by sqrt(1 + ln(factor) / ln(original_max_positions)), if not
// by attention_factor.
struct LongRopeScaling {
  std::vector<double> short_factor = {}, long_factor = {};  // [rotary_dim / 2]
  double factor = 1;                                        // new positions / original ones
  int original_max_positions = 0;
  std::optional<double> attention_factor = {};
  friend bool operator==(LongRopeScaling const&, LongRopeScaling const&) = default;
};

// std::monostate is Hugging Face's "default": frequencies as they are.
using RopeScaling =
    std::variant<std::monostate, LinearScaling, DynamicScaling, Llama3Scaling, YarnScaling, LongRopeScaling>;

struct RopeSettings {
  double theta = 10000;  // base of the frequencies
  int rotary_dim = 0;    // columns of a head that are rotated
  RopeScaling scaling = {};
};

namespace impl {

// What every setting must be; `where` begins the messages.
class RopeChecks {
 public:
  RopeChecks(RopeSettings const& settings, std::string_view where) : settings_(settings), where_(where) {}

  void all() const {
    require(settings_.rotary_dim > 0 && settings_.rotary_dim % 2 == 0, "rotary_dim", settings_.rotary_dim,
            "rope turns pairs of values", "a positive even number");
    require(std::isfinite(settings_.theta) && settings_.theta > 0, "rope_theta", settings_.theta,
            "it is the base of a power", "a positive number such as 10000");
    std::visit([this](auto const& scaling) { of(scaling); }, settings_.scaling);
  }

 private:
  void of(std::monostate) const {}
  void of(LinearScaling const& s) const { factor(s.factor); }
  void of(DynamicScaling const& s) const {
    factor(s.factor), original(s.original_max_positions);
    require(settings_.rotary_dim > 2, "rotary_dim", settings_.rotary_dim, "dynamic scaling divides by rotary_dim - 2",
            "at least 4");
  }
  void of(Llama3Scaling const& s) const {
    factor(s.factor), original(s.original_max_positions);
    positive("low_frequency_factor", s.low_frequency_factor, "it divides a wavelength");
    positive("high_frequency_factor", s.high_frequency_factor, "it divides a wavelength");
    require(s.high_frequency_factor > s.low_frequency_factor, "rope_scaling.high_frequency_factor",
            s.high_frequency_factor, "the bands would be upside down", "more than low_frequency_factor");
  }
  void of(YarnScaling const& s) const {
    factor(s.factor), original(s.original_max_positions), attention(s.attention_factor);
    require(settings_.theta > 1, "rope_theta", settings_.theta, "yarn divides by its logarithm", "more than 1");
    positive("beta_slow", s.beta_slow, "it counts turns");
    positive("beta_fast", s.beta_fast, "it counts turns");
    require(s.beta_fast >= s.beta_slow, "rope_scaling.beta_fast", s.beta_fast, "the blend would be upside down",
            "at least beta_slow");
    for (double const mscale : {s.mscale, s.mscale_all_dim})
      require(std::isfinite(mscale) && mscale >= 0, "rope_scaling.mscale", mscale, "it scales cosines and sines",
              "a number of at least 0");
  }
  void of(LongRopeScaling const& s) const {
    factor(s.factor), original(s.original_max_positions), attention(s.attention_factor);
    require(s.original_max_positions > 1 || s.attention_factor, "rope_scaling.original_max_positions",
            s.original_max_positions, "longrope divides by its logarithm", "more than 1");
    factors("short_factor", s.short_factor), factors("long_factor", s.long_factor);
  }

  void factor(double value) const {
    require(std::isfinite(value) && value >= 1, "rope_scaling.factor", value, "positions are stretched, not shrunk",
            "a number of at least 1");
  }
  void original(int value) const {
    require(value > 0, "rope_scaling.original_max_positions", value, "it is a number of positions",
            "the model's training length");
  }
  void attention(std::optional<double> const& value) const {
    if (value) positive("attention_factor", *value, "it scales cosines and sines");
  }
  void factors(std::string const& name, std::vector<double> const& values) const {
    require(values.size() == std::size_t(settings_.rotary_dim) / 2, "the length of rope_scaling." + name,
            double(values.size()), "each pair has a factor", "rotary_dim / 2 of them");
    for (double const value : values) positive(name, value, "it divides a frequency");
  }
  void positive(std::string const& name, double value, char const* why) const {
    require(std::isfinite(value) && value > 0, "rope_scaling." + name, value, why, "a positive number");
  }
  void require(bool ok, std::string const& name, double value, char const* why, char const* cure) const {
    check(ok, where_,
          [&] { return name + " is " + number_text(value) + " (" + why + "), choose " + std::string(cure); });
  }

  RopeSettings const& settings_;
  std::string_view where_;
};

}  // namespace impl
}  // namespace kfuse

#endif
