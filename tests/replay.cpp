// SPDX-License-Identifier: Apache-2.0
// Replay: the bits of the eager run, values that change in memory, and what cannot be recorded. On the host the same
// promises are kept by calling the work.
#include <kfuse/fused/stage/dropout.hpp>
#include <kfuse/fused/stage/mask.hpp>
#include <kfuse/fused/stage/rope.hpp>
#include <kfuse/fused/stage/softmax.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "recorded_work.hpp"

namespace {

using namespace kfuse::test;
using kfuse::Ledger, kfuse::RandomState;
using Replay = kfuse::Replay<Space>;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("a replay has the bits of the eager run, also for new values in the same memory") {
  Space const space = another_instance();
  Block const work(7, 200);
  Replay replay;
  CHECK(replay.record(work) == has_graphs);
  CHECK(replay.recorded() == has_graphs);
  CHECK(replay.reason().empty() == has_graphs);
  CHECK(replay.launches() == 2);
  for (std::uint64_t seed : {1, 5, 6}) {
    upload(work.x, random_values<float>(7 * 200, seed));
    upload(work.y, std::vector<double>(7 * 200, nan_value));
    replay.run(space);
    auto const replayed = after(space, work.y);
    upload(work.y, std::vector<double>(7 * 200, nan_value));
    work(space);
    CHECK(after(space, work.y) == replayed);
    CHECK(!std::isnan(replayed[0]));
  }
}

TEST_CASE("recording runs the work once, or not at all, and each replay once") {
  Space const space = another_instance();
  Step const with_run, without_run;
  Replay first, second;
  first.record(with_run);
  second.record_only(without_run);
  CHECK(with_run.runs(space) == 1);
  CHECK(without_run.runs(space) == 0);
  for (int i = 0; i < 3; ++i) {  // in turns, on two streams
    first.run(space);
    second.run(Space());
  }
  CHECK(with_run.runs(space) == 4);
  CHECK(without_run.runs(Space()) == 3);
}

TEST_CASE("positions and lengths are read from device memory at each replay") {
  int const rows = 4, head_dim = 8, places = 16;
  Space const space = another_instance();
  auto const x = random_matrix(rows, head_dim, 1), table = random_matrix(places, head_dim, 2);
  auto const rotated = view_of_nans<float>(rows, head_dim);
  auto const scores = random_matrix(rows, places, 3), weights = view_of_nans<float>(rows, places);
  auto const positions = view_of<int>(std::vector<double>(rows, 0), rows), lengths = view_of<int>({0}, 1);
  kfuse::AttentionMask const mask{.queries = rows, .keys = places, .lengths = lengths.data()};
  auto const work = [=](Space const& s) {
    kfuse::fuse(s, "test::rope",
                kfuse::load(x) | kfuse::rope(table, positions, {.head_dim = head_dim}) | kfuse::store(rotated));
    kfuse::fuse(s, "test::scores",
                kfuse::load(scores) | kfuse::attention_mask(mask, 1, 1) | kfuse::softmax() | kfuse::store(weights));
  };
  Replay replay;
  CHECK(replay.record(work) == has_graphs);

  auto const xs = download(x), angles = download(table);
  for (int step = 1; step < 5; ++step) {
    upload(positions, {double(step), double(step + 1), double(step + 2), double(step + 3)});
    upload(lengths, {double(step + 4)});
    replay.run(space);
    auto const turned = after(space, rotated), shares = after(space, weights);
    std::vector<double> expected(xs.size());
    for (int r = 0; r < rows; ++r)
      for (int i = 0; i < head_dim / 2; ++i) {
        double const cosine = angles[(step + r) * head_dim + i],
                     sine = angles[(step + r) * head_dim + head_dim / 2 + i];
        double const a = xs[r * head_dim + i], b = xs[r * head_dim + head_dim / 2 + i];
        expected[r * head_dim + i] = a * cosine - b * sine;
        expected[r * head_dim + head_dim / 2 + i] = b * cosine + a * sine;
      }
    CHECK(deviation(turned, expected) < tolerance<float>());
    for (int r = 0; r < rows; ++r)
      for (int k = 0; k < places; ++k) CHECK((shares[r * places + k] > 0) == (k < step + 4));
  }
}

TEST_CASE("each replay draws from the state in memory: new numbers when it moves on, the same when it is reset") {
  int const rows = 256, columns = 4096;  // 2^20
  Space const space = another_instance();
  auto const x = view_of<float>(std::vector<double>(std::size_t(rows) * columns, 1), rows, columns);
  auto const y = view_of_nans<float>(rows, columns);
  Kokkos::View<RandomState, Space> const state("state");
  auto const set = [&](RandomState const& value) {
    Kokkos::deep_copy(space, state, value);
    space.fence();
  };
  set({1, 0});
  Replay replay;
  CHECK(replay.record([=](Space const& s) {
    kfuse::fuse(s, "test::dropout", kfuse::load(x) | kfuse::dropout(0.5, state) | kfuse::store(y));
  }) == has_graphs);

  auto const replayed = [&](RandomState const& value) {
    set(value);
    replay.run(space);
    return after(space, y);
  };
  auto const eager = [&](RandomState const& value) {
    kfuse::fuse(space, "test::dropout", kfuse::load(x) | kfuse::dropout(0.5, value) | kfuse::store(y));
    return after(space, y);
  };
  auto const first = replayed({7, 0}), second = replayed({7, 1});
  double same = 0;
  for (std::size_t i = 0; i < first.size(); ++i) same += first[i] == second[i];
  CHECK(std::abs(same / double(first.size()) - 0.5) < 0.002);
  CHECK(replayed({7, 0}) == first);
  CHECK(replayed({7, 1}) == second);
  CHECK(eager({7, 0}) == first);
  CHECK(eager({7, 1}) == second);
}

TEST_CASE("work that waits cannot be recorded: that is reported, it runs eagerly, and the stream works again") {
  Space const space = another_instance();
  Step const work;
  auto const waits = [=](Space const& s) {
    work(s);
    s.fence();
    work(s);
  };
  Replay replay;
  CHECK(!replay.record(waits));
  CHECK(!replay.reason().empty());
  CHECK(work.runs(space) == 2);
  replay.run(space);
  CHECK(work.runs(space) == 4);
  CHECK(replay.record(work) == has_graphs);
  replay.run(space);
  CHECK(work.runs(space) == 6);
  work(replay.space());
  CHECK(work.runs(replay.space()) == 7);
}

TEST_CASE("an exception of the first run comes out, and nothing is recorded") {
  Step const work;
  Replay replay;
  replay.record(work);
  auto const wrong = view_of_nans<float>(3, 32);
  auto const message = error_of([&] {
    replay.record([=](Space const& s) {
      kfuse::fuse(s, "user::wrong", kfuse::load(work.x) | kfuse::add(wrong) | kfuse::store(work.x));
    });
  });
  CHECK(contains(message, "user::wrong: add"));
  CHECK(!replay.recorded());
  CHECK(contains(error_of([&] { replay.run(Space()); }), "nothing is recorded"));
  CHECK_THROWS_AS(replay.record([](Space const&) { throw std::domain_error("of the user"); }), std::domain_error);
  replay.record(work);
  replay.run(Space());
  CHECK(work.runs(Space()) == 3);
}

TEST_CASE("what goes wrong while recording is reported, but wrong arguments are thrown") {
  if constexpr (has_graphs) {
    Space const space = another_instance(), other = another_instance();
    Step const work;
    Replay replay;
    CHECK(!replay.record_only([=](Space const& s) {
      work(s);
      throw std::domain_error("of the user");
    }));
    CHECK(replay.reason() == "of the user");
    CHECK(contains(error_of([&] {
                     replay.record_only([=](Space const& s) {
                       work(s);
                       throw kfuse::Error("user: wrong argument");
                     });
                   }),
                   "wrong argument"));
    CHECK(!replay.record_only([=](Space const&) { work(other); }));
    CHECK(contains(replay.reason(), "use the space it is given"));
    CHECK(work.runs(other) == 1);
    CHECK(!replay.record_only([=](Space const& s) {
      work(s);
      Kokkos::fence();
    }));
    CHECK(replay.record_only(work));
    replay.run(space);
    CHECK(work.runs(space) == 2);
  }
}

TEST_CASE("a ledger sees a replay as it sees the eager run, and Execution::none holds for replays") {
  Space const space = another_instance();
  Block const work(3, 40);
  Replay replay;
  replay.record(work);
  upload(work.y, std::vector<double>(3 * 40, nan_value));
  {
    Ledger const ledger(Ledger::Execution::none);
    replay.run(space);
    REQUIRE(ledger.entries().size() == 2);
    CHECK(ledger.entries()[0].label == "test::norm");
    Ledger const eager;
    work(space);
    CHECK(ledger.traffic() == eager.traffic());
    CHECK(contains(error_of([&] { replay.record(work); }), "end that Ledger first"));
  }
  CHECK(std::isnan(after(space, work.y)[0]));
  Ledger const ledger;
  replay.run(space);
  CHECK(ledger.launches() == 2);
  CHECK(!std::isnan(after(space, work.y)[0]));
}

TEST_CASE("work on nothing can be recorded and replayed") {
  auto const nothing = view_of<float>({}, 0, 16);
  Replay replay;
  CHECK(replay.record([=](Space const& s) { Block::increase(s, nothing, nothing); }) == has_graphs);
  CHECK(replay.launches() == 0);
  replay.run(Space());
  Space().fence();
}
