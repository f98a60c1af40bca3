// SPDX-License-Identifier: Apache-2.0
// The cache of graphs: what one graph must not serve, padded rows, and how much is kept.
#include <kfuse/core/blas.hpp>
#include <kfuse/core/workspace.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "recorded_work.hpp"

namespace {

using namespace kfuse::test;
using kfuse::RandomState, kfuse::replay_key;
using Cache = kfuse::ReplayCache<Space>;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("a cache runs eagerly, then records, then replays, and takes effect once each time") {
  Space const space = another_instance();
  Step const work;
  Cache cache;
  int calls = 0;
  auto const key = replay_key(work.x, work.one);
  auto const counted = [&](Space const& s) {
    ++calls;
    work(s);
  };
  CHECK(contains(cache.reason(key), "not been seen"));
  for (int i = 1; i <= 5; ++i) {
    cache.run(space, key, counted);
    CHECK(work.runs(space) == i);
    CHECK(calls == (has_graphs ? std::min(i, 2) : i));
    CHECK(cache.size() == (i > 1 ? 1 : 0));
    CHECK(cache.recorded(key) == (has_graphs && i > 1));
  }
  CHECK(cache.reason(key).empty() == has_graphs);
  cache.clear();
  CHECK(cache.size() == 0);
  cache.run(space, key, counted);
  CHECK(work.runs(space) == 6);
}

TEST_CASE("a cache serves other memory, shapes, strides, types and numbers with graphs of their own") {
  Space const space = another_instance();
  Cache cache;
  auto const run = [&](Matrix const& x, Matrix const& y, double factor) {
    cache.run(space, replay_key(x, y, factor), [=](Space const& s) {
      kfuse::fuse(s, "test::scale", kfuse::load(x) | kfuse::scale(factor) | kfuse::store(y));
    });
    return after(space, y);
  };
  auto const times = [](std::vector<double> v, double factor) {
    for (double& x : v) x *= factor;
    return v;
  };
  auto const y = view_of_nans<float>(4, 16);
  for (std::uint64_t seed : {1, 2, 3}) {  // a new x each time, while the old one may be gone
    auto const x = random_matrix(4, 16, seed);
    for (int i = 0; i < 3; ++i) CHECK(run(x, y, 2) == times(download(x), 2));
    CHECK(run(x, y, 4) == times(download(x), 4));
  }

  auto const memory = random_matrix(8, 16, 4);
  auto const part = [&](int rows, int columns, int stride) {
    return Kokkos::View<float**, Kokkos::LayoutStride, Space>(memory.data(),
                                                              Kokkos::LayoutStride(rows, stride, columns, 1));
  };
  auto const key = replay_key(part(4, 8, 8), 1e-5);
  CHECK(key == replay_key(part(4, 8, 8), 1e-5));
  CHECK(key != replay_key(part(8, 8, 8), 1e-5));
  CHECK(key != replay_key(part(4, 4, 8), 1e-5));
  CHECK(key != replay_key(part(4, 8, 16), 1e-5));
  CHECK(key != replay_key(part(4, 8, 8), 1e-6));
  CHECK(key != replay_key(part(4, 8, 8), 1e-5f));
  auto const as = [&](auto element) { return replay_key(kfuse::make_tensor(&element, 4, 8)).front(); };
  CHECK(as(kfuse::bf16()) != as(kfuse::fp16()));

  kfuse::Workspace<Space> a(1024), b(1024);
  auto const before = replay_key(a);
  CHECK(before != replay_key(b));
  a.take<float>("moved on", 1);
  CHECK(before != replay_key(a));
  kfuse::Blas<Space> const blas{Space()}, other_blas{Space()};
  CHECK(replay_key(blas) == replay_key(blas));
  CHECK(replay_key(blas) != replay_key(other_blas));
  CHECK(replay_key(RandomState{1, 2}) != replay_key(RandomState{1, 3}));
}

TEST_CASE("in buckets the real rows are those of the eager run, whatever the padding holds") {
  int const columns = 40;
  Space const space = another_instance();
  Cache cache;
  Block const block(8, columns);
  auto const first_rows = [&](int rows) {
    Block part = block;
    for (Matrix* m : {&part.x, &part.r, &part.h, &part.y}) *m = Matrix(m->data(), rows, columns);
    return part;
  };
  for (int i = 0; i < 3; ++i)
    for (int rows : {8, 3, 7, 1, 5}) {
      int const bucket = rows <= 1 ? 1 : rows <= 2 ? 2 : rows <= 4 ? 4 : 8;
      auto const size = std::size_t(rows) * columns;
      auto values = random_values<float>(size, std::uint64_t(10 * i + rows));
      values.resize(8 * columns, nan_value);
      upload(block.x, values);
      upload(block.y, std::vector<double>(8 * columns, nan_value));
      Block const padded = first_rows(bucket);
      cache.run(space, replay_key(padded.x, padded.r, padded.h, padded.y, padded.weight), padded);
      auto replayed = after(space, block.y);
      for (std::size_t k = std::size_t(bucket) * columns; k < replayed.size(); ++k) CHECK(std::isnan(replayed[k]));
      upload(block.y, std::vector<double>(8 * columns, nan_value));
      first_rows(rows)(space);
      auto eager = after(space, block.y);
      replayed.resize(size);
      eager.resize(size);
      CHECK(replayed == eager);
    }
  CHECK(cache.size() == 3);  // buckets 8, 4 and 1
}

TEST_CASE("a cache keeps no more than its bound and drops what was not used for longest") {
  Space const space = another_instance();
  kfuse::ReplayCache<Space, int> cache(2);
  Step const work;
  auto const use = [&](int key) { cache.run(space, key, work); };
  for (int key : {1, 1, 2, 2, 1, 3, 3}) use(key);
  CHECK(cache.size() == 2);
  CHECK(cache.reason(1) != cache.reason(2));  // 1 is kept, 2 is gone
  CHECK(contains(cache.reason(2), "not been seen"));
  for (int key = 100; key < 110; ++key) use(key);  // seen once: they drop each other and no graph
  CHECK(cache.size() == 2);
  CHECK(contains(cache.reason(101), "not been seen"));
  CHECK(contains(cache.reason(109), "seen once"));
  CHECK(cache.recorded(1) == has_graphs);
  CHECK(cache.recorded(3) == has_graphs);
  CHECK(work.runs(space) == 17);
  CHECK(contains(error_of([] { Cache(0); }), "replay_cache"));
}

TEST_CASE("a cache runs work that cannot be recorded eagerly, each time") {
  Space const space = another_instance();
  Step const work;
  auto const waits = [=](Space const& s) {
    work(s);
    s.fence();
  };
  Cache cache;
  auto const key = replay_key(work.x);
  for (int i = 0; i < 4; ++i) cache.run(space, key, waits);
  CHECK(work.runs(space) == 4);
  CHECK(!cache.recorded(key));
  CHECK(!cache.reason(key).empty());
  CHECK(!contains(cache.reason(key), "seen"));
}

TEST_CASE("a cache keeps nothing of what a ledger did not let run") {
  Space const space = another_instance();
  Step const work;
  Cache cache;
  {
    kfuse::Ledger const ledger(kfuse::Ledger::Execution::none);
    for (int i = 0; i < 3; ++i) cache.run(space, replay_key(1), work);
    CHECK(ledger.launches() == 3);
  }
  CHECK(cache.size() == 0);
  CHECK(work.runs(space) == 0);
}
