// SPDX-License-Identifier: Apache-2.0
// The parts of the benchmark program that need no device: reading numbers, statistics, JSON, files.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "../bench/arguments.hpp"
#include "../bench/bar.hpp"
#include "../bench/calls.hpp"
#include "../bench/report.hpp"
#include "../bench/statistics.hpp"
#include "temporary_folder.hpp"
#include <nlohmann/json.hpp>

namespace {

using namespace bench;
using kfuse::test::TemporaryFolder, kfuse::test::text_of;

// What `call` refuses, as text; empty if it does not.
template <class Call>
std::string refusal(Call const& call) {
  try {
    call();
  } catch (UsageError const& error) {
    return error.what();
  }
  return {};
}

constexpr int most = std::numeric_limits<int>::max();

std::size_t files_in(TemporaryFolder const& folder) {
  std::filesystem::directory_iterator const first(folder.path());
  return std::size_t(std::distance(first, std::filesystem::directory_iterator()));
}

Run timed_run() {
  Run run;
  run.work = "op/\"odd\"\n";
  run.mode = "fused";
  run.element = "bf16";
  run.shape = {{"rows", 3}, {"columns", 5}};
  run.launches = 1;
  run.bytes = std::size_t(1) << 40;
  run.flops = 7;
  run.seconds = Seconds{2e-6, 1e-6, 3e-6};
  run.fraction_of_copy = 0.5;
  run.max_deviation = 1e-3;
  run.reference = "fp64";
  return run;
}

}  // namespace

TEST_CASE("a whole number is taken as it is") {
  CHECK(whole_number("--rows", "1", 1, most) == 1);
  CHECK(whole_number("--rows", "0", 0, most) == 0);
  CHECK(whole_number("--rows", "2147483647", 1, most) == most);
  CHECK(whole_number("--rows", "007", 1, most) == 7);
}

TEST_CASE("anything but a whole number in range is refused, and the flag is named") {
  for (char const* text : {"", " ", "12x", "x12", "-1", "+1", "1e3", "1.0", "0x10", " 5", "5 ", "0", "2147483648",
                           "4294967297", "18446744073709551617", "99999999999999999999", "nan"}) {
    CAPTURE(text);
    std::string const message = refusal([&] { whole_number("--rows", text, 1, most); });
    CHECK(message.find("--rows") == 0);
    CHECK(message.find("'" + std::string(text) + "'") != std::string::npos);
  }
}

TEST_CASE("a list is put in order, and what is unknown, empty or doubled is refused") {
  std::vector<std::string> const known{"eager", "fused", "replay"};
  CHECK(some_of("--modes", "replay,eager", known) == std::vector<std::string>{"eager", "replay"});
  CHECK(some_of("--modes", "fused", known) == std::vector<std::string>{"fused"});
  for (char const* text : {"", "fused,", ",fused", "fused,,eager", "fusd", "fused,fused", "fused eager"}) {
    CAPTURE(text);
    CHECK(refusal([&] { some_of("--modes", text, known); }).find("--modes") == 0);
  }
}

TEST_CASE("median and quantiles are those of the sorted times, interpolated") {
  auto const five = summary({5, 1, 3, 2, 4});
  REQUIRE(five);
  CHECK(five->median == 3);
  CHECK(five->p10 == doctest::Approx(1.4));
  CHECK(five->p90 == doctest::Approx(4.6));
  auto const two = summary({2, 1});
  REQUIRE(two);
  CHECK(two->median == 1.5);
  auto const one = summary({7});
  REQUIRE(one);
  CHECK(one->median == 7);
  CHECK(one->p10 == 7);
  CHECK(one->p90 == 7);
}

TEST_CASE("times that are none give no figure") {
  CHECK(!summary({}));
  CHECK(!summary({1, 0, 2}));
  CHECK(!summary({1, -1e-9}));
  CHECK(!summary({std::numeric_limits<double>::quiet_NaN(), 1}));
  CHECK(!summary({std::numeric_limits<double>::infinity()}));
}

TEST_CASE("the report is strict JSON, with the same fields in every run and null for what is not known") {
  Run failed = timed_run();
  failed.mode = "replay";
  failed.seconds = {};
  failed.fraction_of_copy = std::numeric_limits<double>::infinity();
  failed.max_deviation = std::numeric_limits<double>::quiet_NaN();
  failed.error = "y[0, 0] is wrong: \xff";  // not UTF-8
  Report const report{.version = "1",
                      .date = "d",
                      .cadence = "cold",
                      .device = "card",
                      .space = "host",
                      .software = "s",
                      .copy_bytes_per_second = {},
                      .runs = {timed_run(), failed},
                      .skipped = {{"op/large", {{"rows", 4}}, "too large"}}};
  auto const json = nlohmann::ordered_json::parse(to_json(report));
  CHECK(json["kfuse"] == "1");
  CHECK(json["device"]["copy_bytes_per_second"].is_null());
  auto const &right = json["runs"][0], &wrong = json["runs"][1];
  CHECK(right["work"] == "op/\"odd\"\n");
  CHECK(right["median_seconds"] == 2e-6);
  CHECK(right["p10_seconds"] == 1e-6);
  CHECK(right["p90_seconds"] == 3e-6);
  CHECK(right["bytes"] == std::size_t(1) << 40);
  CHECK(right["shape"]["columns"] == 5);
  CHECK(right["error"].is_null());
  REQUIRE(json["skipped"].size() == 1);
  CHECK(json["skipped"][0]["work"] == "op/large");
  CHECK(json["skipped"][0]["shape"]["rows"] == 4);
  CHECK(json["skipped"][0]["reason"] == "too large");
  for (char const* field : {"median_seconds", "p10_seconds", "p90_seconds", "fraction_of_copy", "fraction_of_read",
                            "max_deviation", "bar", "bar_of", "verdict"})
    CHECK(wrong[field].is_null());
  CHECK(wrong["error"].is_string());
  std::vector<std::string> fields[2];
  for (int i = 0; i < 2; ++i)
    for (auto const& item : json["runs"][i].items()) fields[i].push_back(item.key());
  CHECK(fields[0] == fields[1]);
}

TEST_CASE("a bar is held against the fused run's fraction of a copy, and the verdict says what is missing") {
  Run run = timed_run();
  hold_against({.at_least = 0.5}, run);
  CHECK(run.bar == 0.5);
  CHECK(run.bar_of == "copy");
  CHECK(run.verdict == "reached");
  hold_against({.at_least = 0.50023}, run);
  CHECK(run.verdict == "missed by 0.00023");
  hold_against({.at_least = 0.525}, run);
  CHECK(run.verdict == "missed by 0.025");
  auto const json = nlohmann::json::parse(to_json(run).dump());
  CHECK(json["bar"] == 0.525);
  CHECK(json["bar_of"] == "copy");
  CHECK(json["verdict"] == "missed by 0.025");
}

TEST_CASE("work that only reads is held against a read") {
  Run run = timed_run();
  run.fraction_of_read = 0.75;
  hold_against({.at_least = 0.9}, run);
  CHECK(run.bar_of == "read");
  CHECK(run.fraction() == 0.75);
  CHECK(run.verdict == "missed by 0.150");
  hold_against({.at_least = 0.525, .of_copy = true}, run);
  CHECK(run.bar_of == "copy");
  CHECK(run.fraction() == 0.5);
  CHECK(run.verdict == "missed by 0.025");
}

TEST_CASE("a bar that is a time is for the replayed run") {
  Run run = timed_run();
  hold_against({.most_seconds = 1e-6}, run);
  CHECK(!run.bar);
  CHECK(run.verdict.empty());
  run.mode = "replay";
  hold_against({.at_least = 0.1}, run);
  CHECK(!run.bar);
  hold_against({.most_seconds = 1.75e-6}, run);
  CHECK(run.bar == 1.75e-6);
  CHECK(run.bar_of == "seconds");
  CHECK(run.verdict == "missed by 0.25 us");
  hold_against({.most_seconds = 1.9977e-6}, run);
  CHECK(run.verdict == "missed by 0.0023 us");
  run.seconds->median = 123e-6;
  hold_against({.most_seconds = 2e-6}, run);
  CHECK(run.verdict == "missed by 121.00 us");
  run.seconds->median = 2e-6;
  hold_against({.most_seconds = 2e-6}, run);
  CHECK(run.verdict == "reached");
}

TEST_CASE("a bar of several calls is for the replayed run, too") {
  Run run = timed_run();
  hold_against({.at_least = 0.525, .calls = 4}, run);
  CHECK(!run.bar);
  run.mode = "replay";
  hold_against({.at_least = 0.525, .calls = 4}, run);
  CHECK(run.bar_of == "copy");
  CHECK(run.verdict == "missed by 0.025");
}

TEST_CASE("there is no verdict on what was not measured") {
  Run failed = timed_run();
  failed.seconds = {};
  Run odd = timed_run();
  odd.fraction_of_copy = {};
  for (Run* run : {&failed, &odd}) {
    hold_against({.at_least = 0.5}, *run);
    CHECK(run->bar == 0.5);
    CHECK(run->verdict.empty());
  }
}

TEST_CASE("bars are for elements of 16 bits; wider ones have a twentieth more time") {
  Bar const bar{.at_least = 0.9, .most_seconds = 1.9e-6};
  for (auto type : {kfuse::ElementType::bf16, kfuse::ElementType::fp16}) CHECK(bar_in(type, bar).at_least == 0.9);
  for (auto type : {kfuse::ElementType::fp32, kfuse::ElementType::fp64}) {
    CHECK(bar_in(type, bar).at_least == doctest::Approx(0.855));
    CHECK(bar_in(type, bar).most_seconds == doctest::Approx(2e-6));
  }
}

TEST_CASE("a bar names the sizes that differ from the entry's, and no others") {
  Entry const entry{"op", "", {{"rows", 2}, {"columns", 3}}, {}, {}, {}};
  CHECK(entry.sizes_of({}) == Sizes{{"rows", 2}, {"columns", 3}});
  CHECK(entry.sizes_of({.sizes = {{"columns", 5}}}) == Sizes{{"rows", 2}, {"columns", 5}});
  CHECK_THROWS(entry.sizes_of({.sizes = {{"colums", 5}}}));
}

TEST_CASE("several calls have memory of their own, and run in order") {
  HostSpace const space;
  Memory<HostSpace> memory(space);
  std::string order;
  int made = 0;
  auto const make = [&] {
    auto const y = empty<float>(memory, 2, 3);
    int const number = made++;
    return Case<HostSpace>{.fused = [&order, number](auto const&) { order += std::to_string(number); },
                           .outputs = {output("y", y, {})},
                           .restore = [&order](auto const&) { order += "r"; }};
  };
  auto const all = several_calls<HostSpace>(3, make);
  CHECK(all.layers == 3);
  CHECK(!all.eager);
  REQUIRE(all.outputs.size() == 3);
  CHECK(all.outputs[2].name == "y of call 2");
  CHECK(all.outputs[0].data != all.outputs[1].data);
  CHECK(all.outputs[1].data != all.outputs[2].data);
  kfuse::Blas<HostSpace> blas(space);
  Context<HostSpace> const context{space, memory.block, blas};
  all.restore(context);
  all.fused(context);
  CHECK(order == "rrr012");
  CHECK(several_calls<HostSpace>(1, make).outputs[0].name == "y");
}

TEST_CASE("a file appears when it is whole, and replaces an old one only then") {
  TemporaryFolder const folder;
  auto const path = folder.path() / "out.json";
  std::ofstream(path) << "old";
  {
    NewFile const file(path.string());
    CHECK(text_of(path) == "old");
    CHECK(files_in(folder) == 1);  // nothing lies around while the work runs
    file.write("new");
    CHECK(text_of(path) == "new");
  }
  CHECK(text_of(path) == "new");
  CHECK(files_in(folder) == 1);
}

TEST_CASE("a file that cannot be written is refused before the work") {
  TemporaryFolder const folder;
  for (std::string const name : {"absent/out.json", ".", ""}) {
    auto const path = name.empty() ? std::filesystem::path() : folder.path(name);
    CAPTURE(path.string());
    CHECK(refusal([&] { NewFile file(path.string()); }).find("--json") == 0);
  }
  CHECK(files_in(folder) == 0);
}
