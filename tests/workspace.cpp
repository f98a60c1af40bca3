// SPDX-License-Identifier: Apache-2.0
// The Workspace: what is handed out, given back, refused and counted.
#include <kfuse/core/fuse.hpp>
#include <kfuse/core/workspace.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/load_store.hpp>
#include <kfuse/fused/stage/norm.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support.hpp"

namespace {

using namespace kfuse::test;
using kfuse::Ledger;
using Workspace = kfuse::Workspace<Space>;

template <class Element, int rank>
std::uintptr_t begin_of(kfuse::Tensor<Element, rank> const& t) {
  return reinterpret_cast<std::uintptr_t>(t.data);
}

// The bytes of a piece of a workspace, as the host sees them.
template <class Element, int rank>
std::vector<Element> values_of(kfuse::Tensor<Element, rank> const& t) {
  return elements(Kokkos::View<Element const*, Space, Kokkos::MemoryUnmanaged>(t.data, std::size_t(t.size())));
}

// h = 2 x, y = rmsnorm(h + r), with h and r = 3 x in the workspace, and r in a scope of its own.
struct SmallLayer {
  static constexpr int rows = 5, columns = 96;
  decltype(view_of_nans<float>(1, 1)) x = view_of<float>(random_values<float>(rows * columns, 1), rows, columns);
  decltype(view_of_nans<float>(1, 1)) y = view_of_nans<float>(rows, columns);
  decltype(view_of_nans<float>(1)) weight = view_of<float>(random_values<float>(columns, 2), columns);

  void run(Workspace& workspace) const {
    Space const space;
    auto const all = workspace.scope();
    auto const h = workspace.take<float>("h", rows, columns);
    kfuse::fuse(space, "test::h", kfuse::load(x) | kfuse::scale(2) | kfuse::store(h));
    for (int i = 0; i < 2; ++i) {
      auto const part = workspace.scope();
      auto const r = workspace.take<float>("r", rows, columns);
      kfuse::fuse(space, "test::r", kfuse::load(x) | kfuse::scale(3) | kfuse::store(r));
      kfuse::fuse(space, "test::y", kfuse::load(h) | kfuse::add(r) | kfuse::rmsnorm(weight) | kfuse::store(y));
    }
  }
};

}  // namespace

TEST_CASE("pieces have the shape asked for, begin at multiples of 256 bytes and do not overlap") {
  Workspace workspace(8192);
  auto const a = workspace.take<float>("a", 3, 7);
  auto const b = workspace.take<std::uint8_t>("b", 1);
  auto const c = workspace.take<double>("c", 2, 3, 5);
  CHECK(a.extent(0) == 3);
  CHECK(a.extent(1) == 7);
  CHECK(a.stride(0) == 7);
  CHECK(c.stride(0) == 15);
  CHECK(c.stride(1) == 5);
  for (std::uintptr_t begin : {begin_of(a), begin_of(b), begin_of(c)}) CHECK(begin % Workspace::alignment == 0);
  CHECK(begin_of(b) >= begin_of(a) + 3 * 7 * sizeof(float));
  CHECK(begin_of(c) >= begin_of(b) + 1);
  CHECK(workspace.used() == 3 * 256);
  CHECK(workspace.capacity() == 8192);
}

TEST_CASE("the memory is the device's to write, all of it") {
  Space const space = another_instance();
  Workspace workspace(4096);
  auto const whole = workspace.take<float>("whole", 16, 64);
  auto const ones = view_of<float>(std::vector<double>(16 * 64, 1), 16, 64);
  kfuse::fuse(space, "test::fill", kfuse::load(ones) | kfuse::store(whole));
  space.fence();
  CHECK(values_of(whole) == std::vector<float>(16 * 64, 1));
}

TEST_CASE("too small a workspace says who needs how much, what is left and what would do") {
  Workspace workspace(1024);
  workspace.take<float>("first", 100);  // 400 bytes, which take 512
  auto const message = error_of([&] { workspace.take<double>("scores", 10, 13); });
  CHECK(contains(message, "scores: workspace: 1040 bytes are needed"));
  CHECK(contains(message, "of 1024 only 512 are left"));
  CHECK(contains(message, "at least 1792 bytes"));
  CHECK(workspace.used() == 512);
  CHECK(workspace.peak() == 512);

  Workspace enough(1792);
  enough.take<float>("first", 100);
  CHECK(error_of([&] { enough.take<double>("scores", 10, 13); }).empty());
}

TEST_CASE("extents that cannot be are refused, not wrapped around") {
  auto workspace = Workspace::counting();
  CHECK(contains(error_of([&] { workspace.take<float>("scores", -1); }), "scores: workspace: an extent"));
  CHECK(contains(error_of([&] { workspace.take<float>("scores", 3, std::int64_t(1) << 32); }),
                 "scores: workspace: an extent"));
  int const large = 1 << 30;
  CHECK(contains(error_of([&] { workspace.take<double>("scores", large, large, large); }), "too many bytes"));
  CHECK(workspace.peak() == 0);
}

TEST_CASE("a scope gives back what was taken in it, also when an exception ends it") {
  Workspace workspace(4096);
  auto const kept = workspace.take<float>("kept", 64);
  std::uintptr_t inside = 0;
  try {
    auto const scope = workspace.scope();
    inside = begin_of(workspace.take<float>("inside", 64));
    {
      auto const nested = workspace.scope();
      workspace.take<float>("nested", 128);
      CHECK(workspace.used() == 4 * 256);
    }
    CHECK(workspace.used() == 2 * 256);
    throw std::runtime_error("the end");
  } catch (std::runtime_error const&) {
  }
  CHECK(workspace.used() == 256);
  CHECK(workspace.peak() == 4 * 256);
  CHECK(begin_of(workspace.take<float>("again", 64)) == inside);
  CHECK(inside == begin_of(kept) + 256);
}

TEST_CASE("counting finds exactly what the run takes, and runs nothing") {
  SmallLayer const layer;
  auto counted = Workspace::counting();
  {
    Ledger const ledger(Ledger::Execution::none);
    layer.run(counted);
    CHECK(ledger.launches() == 5);
  }
  CHECK(std::isnan(download(layer.y)[0]));
  CHECK(counted.used() == 0);
  CHECK(counted.peak() == 2 * ((SmallLayer::rows * SmallLayer::columns * 4 + 255) / 256 * 256));

  Workspace exact(counted.peak());
  layer.run(exact);
  CHECK(exact.peak() == counted.peak());
  CHECK(!std::isnan(deviation(download(layer.y), download(layer.y))));
  CHECK(!std::isnan(download(layer.y)[0]));

  Workspace less(counted.peak() - 1);
  CHECK(contains(error_of([&] { layer.run(less); }), "at least " + std::to_string(counted.peak())));
}

TEST_CASE("a workspace that only counts is refused by what would run") {
  auto const x = view_of<float>({1, 2, 3, 4}, 2, 2);
  auto const run = [&](Workspace& workspace) {
    kfuse::fuse(Space(), "test::run", kfuse::load(x) | kfuse::RootMeanSquare(1e-6) | kfuse::store(x), workspace);
  };
  auto counted = Workspace::counting();
  CHECK(contains(error_of([&] { run(counted); }), "test::run: workspace: it only counts"));
  CHECK(download(x) == std::vector<double>{1, 2, 3, 4});
  Ledger const ledger(Ledger::Execution::none);
  run(counted);
}

TEST_CASE("rows shared by several teams take what counting says") {
  int const rows = 2, columns = 70000;
  auto const x = view_of<float>(random_values<float>(rows * columns, 1), rows, columns);
  auto const run = [&](Workspace& workspace) {
    kfuse::fuse(Space(), "test::long", kfuse::load(x) | kfuse::RootMeanSquare(1e-6) | kfuse::store(x), workspace);
  };
  auto counted = Workspace::counting();
  {
    Ledger const ledger(Ledger::Execution::none);
    run(counted);
  }
  Workspace exact(counted.peak());
  run(exact);
  CHECK(exact.peak() == counted.peak());
}

TEST_CASE("poison fills what is not taken with NaNs of every element type, and leaves what is taken") {
  Space const space = another_instance();
  Workspace workspace(2048);
  auto const taken = workspace.take<float>("taken", 64);
  auto const ones = view_of<float>(std::vector<double>(64, 1), 1, 64);
  kfuse::fuse(space, "test::fill", kfuse::load(ones) | kfuse::store(kfuse::make_tensor(taken.data, 1, 64)));
  workspace.poison(space);
  space.fence();
  CHECK(values_of(taken) == std::vector<float>(64, 1));
  auto const all_nan = [&]<class Element>(Element, int count) {
    auto const scope = workspace.scope();
    bool nan = true;
    for (Element v : values_of(workspace.take<Element>("rest", count))) nan = nan && std::isnan(decode(v));
    return nan;
  };
  CHECK(all_nan(float(), 448));
  CHECK(all_nan(double(), 224));
  CHECK(all_nan(kfuse::bf16(), 896));
  CHECK(all_nan(kfuse::fp16(), 896));
  CHECK(all_nan(kfuse::fp8_e4m3(), 1792));
  CHECK(all_nan(kfuse::fp8_e5m2(), 1792));
  Workspace::counting().poison(space);  // has no memory to touch
}

TEST_CASE("no two workspaces have the same generation") {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 3; ++i) CHECK(seen.insert(Workspace(256).generation()).second);
  CHECK(seen.insert(Workspace::counting().generation()).second);
}

TEST_CASE("a workspace may be empty, and memory that cannot be had is an error that says so") {
  Workspace nothing(0);
  CHECK(nothing.take<float>("nothing", 0).empty());
  CHECK(contains(error_of([&] { nothing.take<float>("something", 1); }), "something: workspace: 4 bytes are needed"));
  auto const bytes = std::size_t(1) << 60;
  CHECK(
      contains(error_of([&] { Workspace too_much(bytes); }), std::to_string(bytes) + " bytes could not be allocated"));
}
