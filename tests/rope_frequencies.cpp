// SPDX-License-Identifier: Apache-2.0
// The frequencies and tables of rope, against values worked out by hand and against long double.
#include <kfuse/fused/rope_table.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::DynamicScaling;
using kfuse::LinearScaling;
using kfuse::Llama3Scaling;
using kfuse::LongRopeScaling;
using kfuse::rope_frequencies;
using kfuse::rope_table_row;
using kfuse::RopeSettings;
using kfuse::YarnScaling;
using namespace kfuse::test;

void check_frequencies(RopeSettings const& settings, int length, std::vector<double> const& expected,
                       double attention_scaling = 1) {
  auto const f = rope_frequencies(settings, length);
  CHECK(f.rotary_dim() == settings.rotary_dim);
  CHECK(deviation(f.inverse, expected, 0) <= 1e-12);
  CHECK(f.attention_scaling == doctest::Approx(attention_scaling).epsilon(1e-12));
}

TEST_CASE("plain and linear frequencies are powers of theta") {
  check_frequencies({.rotary_dim = 8}, 100, {1, 0.1, 0.01, 0.001});
  check_frequencies({.theta = 256, .rotary_dim = 4}, 100, {1, 1.0 / 16});
  check_frequencies({.rotary_dim = 8, .scaling = LinearScaling{4}}, 100, {0.25, 0.025, 0.0025, 0.00025});
}

// theta grows by (2 * 2 - 1)^(4 / 2) = 9 at twice the length, and 1 / sqrt(90000) = 1 / 300.
TEST_CASE("dynamic frequencies change where the sequence is longer than the original") {
  RopeSettings const settings{.rotary_dim = 4, .scaling = DynamicScaling{2, 1024}};
  for (int const length : {0, 1, 1024}) check_frequencies(settings, length, {1, 0.01});
  check_frequencies(settings, 2048, {1, 1.0 / 300});
}

// CASES P19
TEST_CASE("llama3 frequencies are kept, blended and divided in three bands") {
  auto const check_values = [](RopeSettings const& settings, std::vector<std::pair<int, double>> const& expected) {
    auto const f = rope_frequencies(settings, 131072);
    for (auto const& [i, value] : expected) CHECK(std::abs(f.inverse[i] / value - 1) < 1e-9);  // given with ten digits
    CHECK(f.attention_scaling == 1);
  };
  RopeSettings settings{.theta = 5e5, .rotary_dim = 64, .scaling = Llama3Scaling{32, 1, 4, 8192}};
  check_values(settings, {{14, 0.003211445995},
                          {15, 0.001290547928},
                          {16, 0.0004295567966},
                          {17, 9.708287803e-5},
                          {18, 1.946163818e-5},
                          {31, 9.418306725e-8}});
  auto const plain = rope_frequencies({.theta = 5e5, .rotary_dim = 64}, 8192).inverse;
  auto const scaled = rope_frequencies(settings, 8192).inverse;
  for (int i = 0; i <= 14; ++i) CHECK(scaled[i] == plain[i]);
  for (int i = 18; i < 32; ++i) CHECK(scaled[i] == plain[i] / 32);
  settings = {.theta = 5e5, .rotary_dim = 128, .scaling = Llama3Scaling{8, 1, 4, 8192}};
  check_values(settings, {{28, 0.003211445995}, {29, 0.002166570764}, {34, 0.0001785078128}, {35, 9.556212354e-5}});
}

// Pairs that turn 32 times and once in 2048 positions: 8 ln(2048 / (2 pi 32)) / (2 ln 10000) = 1.008, rounded down to
// 1, and 8 ln(2048 / (2 pi)) / (2 ln 10000) = 2.513, rounded up to 3. So pair 2 is half kept: 0.01 (1 / 2 + 1 / 2 / 4).
// Cosines and sines grow by 0.1 ln 4 + 1.
TEST_CASE("yarn frequencies blend between pairs that turn often and seldom") {
  double const growth = 1.1386294361119891;
  YarnScaling yarn{.factor = 4, .original_max_positions = 2048};
  auto const with = [](YarnScaling const& s) { return RopeSettings{.rotary_dim = 8, .scaling = s}; };
  check_frequencies(with(yarn), 8192, {1, 0.1, 0.00625, 0.00025}, growth);
  yarn.truncate = false;  // pair 2 is stretched by (2 - 1.00800) / (2.51315 - 1.00800) = 0.65907, pair 1 not at all
  check_frequencies(with(yarn), 8192, {1, 0.1, 0.005056971521129434, 0.00025}, growth);
}

// With the same beta both ends are one pair, with whole pairs one apart; so pair 1 is kept and pair 2 is stretched.
TEST_CASE("yarn's blend may have no width") {
  YarnScaling const yarn{.factor = 4, .original_max_positions = 2048, .beta_fast = 32, .beta_slow = 32};
  check_frequencies({.rotary_dim = 8, .scaling = yarn}, 8192, {1, 0.1, 0.0025, 0.00025}, 1.1386294361119891);
  YarnScaling sharp = yarn;
  sharp.truncate = false;
  check_frequencies({.rotary_dim = 8, .scaling = sharp}, 8192, {1, 0.1, 0.0025, 0.00025}, 1.1386294361119891);
}

TEST_CASE("yarn scales cosines and sines by its factor, by attention_factor, or by both mscales") {
  YarnScaling yarn{.factor = 40, .original_max_positions = 4096, .mscale = 0.707};
  auto const scaling = [&] { return rope_frequencies({.rotary_dim = 64, .scaling = yarn}, 1).attention_scaling; };
  CHECK(scaling() == doctest::Approx(0.1 * std::log(40) + 1).epsilon(1e-14));  // one mscale alone changes nothing
  yarn.mscale_all_dim = 1;
  CHECK(scaling() == doctest::Approx((0.0707 * std::log(40) + 1) / (0.1 * std::log(40) + 1)).epsilon(1e-14));
  yarn.attention_factor = 0.75;
  CHECK(scaling() == 0.75);
  yarn = {.factor = 1, .original_max_positions = 4096};
  CHECK(scaling() == 1);
}

// sqrt(1 + ln 4 / ln 4096) = sqrt(1 + 2 / 12)
TEST_CASE("longrope has factors of its own for each pair, by the length of the sequence") {
  LongRopeScaling rope{.short_factor = {1, 2}, .long_factor = {2, 8}, .factor = 4, .original_max_positions = 4096};
  auto const with = [&] { return RopeSettings{.rotary_dim = 4, .scaling = rope}; };
  for (int const length : {1, 4096}) check_frequencies(with(), length, {1, 0.005}, std::sqrt(7.0 / 6));
  for (int const length : {4097, 16384}) check_frequencies(with(), length, {0.5, 0.00125}, std::sqrt(7.0 / 6));
  rope.factor = 1;
  check_frequencies(with(), 1, {1, 0.005}, 1);
  rope.attention_factor = 1.25;
  check_frequencies(with(), 1, {1, 0.005}, 1.25);
}

// CASES P17
TEST_CASE("the angle of a far position is exact") {
  auto const check_row = [](int rotary_dim, int pair, int position, double cosine, double sine) {
    auto const row = rope_table_row(rope_frequencies({.rotary_dim = rotary_dim}, position + 1), position);
    CHECK(std::abs(row[pair] - cosine) < 1e-9);
    CHECK(std::abs(row[rotary_dim / 2 + pair] - sine) < 1e-9);
  };
  check_row(32, 1, 1857, 0.306692810, 0.951808552);
  check_row(128, 0, 15962, -0.908015901, 0.418935703);
  check_row(128, 1, 15962, 0.884606723, -0.466337802);
}
// Settings of one kind, and what they mean by the definitions of rope_settings.hpp, for 1,000,001 positions.
using Wide = long double;
struct Kind {
  kfuse::RopeScaling scaling;
  std::vector<Wide> frequencies;  // of the pairs
  Wide growth = 1;                // of cosines and sines
};
std::vector<Kind> all_kinds(Wide theta, int rotary_dim) {
  Wide const turn = 2 * std::acos(Wide(-1)), length = 1000001;
  auto const plain = [&](Wide base, int i) { return std::pow(base, -2 * Wide(i) / rotary_dim); };
  auto const of_pairs = [&](auto const& frequency) {
    std::vector<Wide> f;
    for (int i = 0; i < rotary_dim / 2; ++i) f.push_back(frequency(i));
    return f;
  };
  std::vector<Kind> kinds{{{}, of_pairs([&](int i) { return plain(theta, i); })},
                          {LinearScaling{3}, of_pairs([&](int i) { return plain(theta, i) / 3; })}};

  if (rotary_dim > 2) {
    Wide const base = theta * std::pow(3 * length / 4096 - 2, Wide(rotary_dim) / (rotary_dim - 2));
    kinds.push_back({DynamicScaling{3, 4096}, of_pairs([&](int i) { return plain(base, i); })});
  }

  auto const in_bands = [&](int i) {
    Wide const f = plain(theta, i), wavelength = turn / f, kept = (8192 / wavelength - 1) / (4 - 1);
    return wavelength < 8192 / 4.0L ? f : wavelength > 8192 ? f / 8 : (1 - kept) * f / 8 + kept * f;
  };
  kinds.push_back({Llama3Scaling{8, 1, 4, 8192}, of_pairs(in_bands)});

  auto const pair_that_turns = [&](int times) {
    return rotary_dim * std::log(32768 / (times * turn)) / (2 * std::log(theta));
  };
  auto const blended = [&](int i) {
    Wide const first = std::floor(pair_that_turns(32)), last = std::ceil(pair_that_turns(1));
    Wide const stretched = i < first ? 0 : i > last ? 1 : (i - first) / (last - first);
    return plain(theta, i) * (1 - stretched) + plain(theta, i) / 4 * stretched;
  };
  kinds.push_back({YarnScaling{4, 32768}, of_pairs(blended), 0.1L * std::log(4.0L) + 1});

  LongRopeScaling rope{.factor = 32, .original_max_positions = 4096};
  for (int i = 0; i < rotary_dim / 2; ++i) rope.short_factor.push_back(1), rope.long_factor.push_back(1 + 0.25 * i);
  kinds.push_back({rope, of_pairs([&](int i) { return plain(theta, i) / (1 + 0.25L * i); }),
                   std::sqrt(1 + std::log(32.0L) / std::log(4096.0L))});
  return kinds;
}
TEST_CASE("angles agree with long double at position 1,000,000, with all kinds of settings") {
  for (double const theta : {1e4, 5e5, 1e6})
    for (int const rotary_dim : {2, 64, 96, 128, 256})
      for (auto const& [scaling, frequencies, growth] : all_kinds(theta, rotary_dim)) {
        CAPTURE(theta);
        CAPTURE(rotary_dim);
        CAPTURE(scaling.index());
        RopeSettings const settings{.theta = theta, .rotary_dim = rotary_dim, .scaling = scaling};
        auto const row = rope_table_row(rope_frequencies(settings, 1000001), 1000000);
        for (int i = 0; i < rotary_dim / 2; ++i) {
          Wide const angle = 1000000 * frequencies[i];
          REQUIRE(std::abs(row[i] - double(growth * std::cos(angle))) < 1e-9);
          REQUIRE(std::abs(row[rotary_dim / 2 + i] - double(growth * std::sin(angle))) < 1e-9);
        }
      }
}

TEST_CASE_TEMPLATE("a table has a row for each position, rounded once", Element, double, float, kfuse::bf16) {
  YarnScaling const yarn{.factor = 4, .original_max_positions = 16};
  auto const f = rope_frequencies({.rotary_dim = 8, .scaling = yarn}, 70);
  auto const table = kfuse::rope_table<Space, Element>(f, 70);
  REQUIRE(table.extent(0) == 70);
  REQUIRE(table.extent(1) == 8);
  auto const values = download(table);
  for (int p = 0; p < 70; ++p)
    for (int i = 0; i < 4; ++i) {
      CHECK(values[p * 8 + i] == rounded<Element>(f.attention_scaling * std::cos(p * f.inverse[i])));
      CHECK(values[p * 8 + 4 + i] == rounded<Element>(f.attention_scaling * std::sin(p * f.inverse[i])));
    }
  CHECK(kfuse::rope_table<Space, Element>(f, 0).size() == 0);
  CHECK(contains(error_of([&] { kfuse::rope_table<Space, Element>(f, -1); }), "positions is negative"));
}

TEST_CASE("settings that make no frequencies are refused by name") {
  auto const refused = [](RopeSettings const& settings, std::string const& part) {
    std::string const message = error_of([&] { rope_frequencies(settings, 10); });
    CAPTURE(message);
    CHECK(message.starts_with("rope_frequencies: "));
    CHECK(contains(message, part));
  };
  double const infinity = INFINITY;
  for (int const rotary_dim : {0, 3, -2})
    refused({.rotary_dim = rotary_dim}, "rotary_dim is " + std::to_string(rotary_dim));
  for (double const bad : {0.0, -1.0, infinity, double(NAN)}) {
    refused({.theta = bad, .rotary_dim = 8}, "rope_theta is");
    refused({.rotary_dim = 8, .scaling = LinearScaling{bad}}, "factor is");
    refused({.rotary_dim = 8, .scaling = DynamicScaling{bad, 10}}, "factor is");
    refused({.rotary_dim = 8, .scaling = Llama3Scaling{8, bad, 4, 10}}, "low_frequency_factor is");
    refused({.rotary_dim = 8, .scaling = Llama3Scaling{8, 1, bad, 10}}, "high_frequency_factor is");
    refused({.rotary_dim = 8, .scaling = YarnScaling{8, 10, bad, 1}}, "beta_fast is");
    refused({.rotary_dim = 8, .scaling = YarnScaling{8, 10, 32, bad}}, "beta_slow is");
    refused({.rotary_dim = 8, .scaling = YarnScaling{8, 10, 32, 1, bad}}, "attention_factor is");
    refused({.rotary_dim = 4, .scaling = LongRopeScaling{{1, bad}, {1, 1}, 1, 10}}, "short_factor is");
    refused({.rotary_dim = 4, .scaling = LongRopeScaling{{1, 1}, {bad, 1}, 1, 10}}, "long_factor is");
  }
  refused({.rotary_dim = 8, .scaling = Llama3Scaling{8, 4, 4, 10}}, "high_frequency_factor is 4");
  refused({.rotary_dim = 8, .scaling = YarnScaling{8, 10, 1, 2}}, "beta_fast is 1");
  refused({.rotary_dim = 8, .scaling = YarnScaling{.factor = 8, .original_max_positions = 10, .mscale = -1}},
          "mscale is -1");
  refused({.theta = 1, .rotary_dim = 8, .scaling = YarnScaling{8, 10}}, "rope_theta is 1");
  refused({.rotary_dim = 2, .scaling = DynamicScaling{2, 10}}, "rotary_dim is 2");
  refused({.rotary_dim = 8, .scaling = DynamicScaling{2}}, "original_max_positions is 0");
  refused({.rotary_dim = 8, .scaling = YarnScaling{2}}, "original_max_positions is 0");
  refused({.rotary_dim = 4, .scaling = LongRopeScaling{{1}, {1, 1}, 1, 10}},
          "length of rope_scaling.short_factor is 1");
  refused({.rotary_dim = 4, .scaling = LongRopeScaling{{1, 1}, {1, 1}, 2, 1}}, "original_max_positions is 1");
  CHECK(contains(error_of([] { rope_frequencies({.rotary_dim = 8}, -1); }), "length is negative"));
}

}  // namespace
