// SPDX-License-Identifier: Apache-2.0
// What tests on simulated lanes find: one fault is planted at a time, and each is seen. Barriers are taken out of the
// very kernels, one after the other, so this also shows that none of them is there for nothing.
#include "planted_faults.hpp"

#include <kfuse/core/product_kernel.hpp>
#include <kfuse/fused/add_layernorm.hpp>
#include <kfuse/fused/attention.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::make_tensor;
using namespace kfuse::test;

std::vector<float> numbers(int n, std::uint64_t seed) {
  auto const values = random_values<float>(n, seed);
  return {values.begin(), values.end()};
}

// One row on a team, with a barrier in each of two reductions.
struct Norm {
  int columns;
  template <class Space>
  std::vector<float> operator()(Space const& space) const {
    auto const x = numbers(columns, 1), w = numbers(columns, 2);
    std::vector<float> y(columns);
    auto const in = make_tensor(x.data(), 1, columns);
    auto const weight = make_tensor(w.data(), columns);
    kfuse::add_layernorm(space, in, in, weight, weight, make_tensor(y.data(), 1, columns));
    return y;
  }
};
// A tile, over two blocks of the depth: two barriers for each, and one before the tile is stored.
struct Product {
  template <class Space>
  std::vector<float> operator()(Space const& space) const {
    constexpr int n = 40, depth = 64;
    auto const a = numbers(n * depth, 1), b = numbers(depth * n, 2);
    std::vector<float> d(n * n);
    kfuse::impl::launch_product(space, "test", make_tensor(a.data(), 1, n, depth), make_tensor(b.data(), 1, depth, n),
                                kfuse::Transpose::no, make_tensor(d.data(), 1, n, n), kfuse::scale(1));
    return d;
  }
};
// Two segments of keys: a barrier when a segment's parts are there, and one before they are overwritten.
struct Attention {
  template <class Space>
  std::vector<float> operator()(Space const& space) const {
    constexpr int queries = 4, keys = 200, dim = 40;
    auto const q = numbers(queries * dim, 1), k = numbers(keys * dim, 2), v = numbers(keys * dim, 3);
    std::vector<float> out(queries * dim);
    kfuse::attention(space, make_tensor(q.data(), 1, 1, queries, dim), make_tensor(k.data(), 1, 1, keys, dim),
                     make_tensor(v.data(), 1, 1, keys, dim), make_tensor(out.data(), 1, 1, queries, dim));
    return out;
  }
};

TEST_CASE_TEMPLATE("every barrier of the kernels is missed", Space, SimulatedSpace<32>, SimulatedSpace<64>) {
  auto const check = [](auto const& work, int barriers) {
    for (int number = 0; number < barriers; ++number) {
      CAPTURE(number);
      CHECK(seen<Space>(work, {Fault::missing_barrier, number}) == "the result depends on which lanes go first");
    }
    CHECK(seen<Space>(work, {Fault::missing_barrier, barriers}) == "");  // there are no more
  };
  check(Norm{2000}, 2);           // in registers
  check(Norm{40001}, 2);          // in passes, of two segments, which share a barrier
  check(Norm{8 * 32768 + 9}, 4);  // of nine segments: eight, and one
  check(Product(), 5);
  check(Attention(), 3);
}

TEST_CASE_TEMPLATE("a shuffle from the wrong lane is seen", Space, SimulatedSpace<32>, SimulatedSpace<64>) {
  for (int const number : {0, 4, 9}) {
    CAPTURE(number);
    CHECK(seen<Space>(Norm{2000}, {Fault::wrong_lane, number}) != "");
    CHECK(seen<Space>(Attention(), {Fault::wrong_lane, number}) != "");
  }
}

// A kernel that may be wrong by itself.
struct Careless {
  static constexpr int threads = 64;
  enum Kind { right, skipped_barrier, different_shuffles, lane_beyond_group, scratch, write } kind;
  int* sum;
  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    kfuse::impl::LanesOf<Team> const lanes(team);
    auto* const slots = static_cast<int*>(lanes.scratch(kind == scratch ? 64 : 8));
    int all = lanes.rank();
    for (int step = kind == lane_beyond_group ? 32 : 16; step > 0; step /= 2)
      all += lanes.shuffle_xor(all, kind == different_shuffles && lanes.rank() == 5 ? 1 : step);
    if (lanes.rank() % 32 == 0) slots[lanes.rank() / 32 + (kind == write ? 1 : 0)] = all;
    if (kind != skipped_barrier || lanes.rank() != 7) lanes.barrier();
    if (lanes.rank() == 0) *sum = slots[0] + slots[1] + lanes.broadcast(lanes.rank(), 3);
    if (lanes.rank() > 0 && lanes.rank() < 32) lanes.broadcast(lanes.rank(), 3);
  }
};
TEST_CASE("simulated lanes exchange what they should, and report what a GPU would not") {
  int sum = 0;
  auto const launch = [&](Careless::Kind kind) {
    SimulatedBackend<32>::launch(SimulatedSpace<32>(), "", 1, 8, Careless{kind, &sum});
  };
  launch(Careless::right);
  CHECK(sum == 63 * 64 / 2 + 3);
  CHECK_THROWS_WITH(launch(Careless::skipped_barrier), "lanes wait for lanes that never come");
  CHECK_THROWS_WITH(launch(Careless::different_shuffles), "lanes of one group came to different operations");
  CHECK_THROWS_WITH(launch(Careless::lane_beyond_group), "a value is taken from a lane beyond the group");
  CHECK_THROWS_WITH(launch(Careless::scratch), "more scratch is used than was launched with");
  CHECK_THROWS_WITH(launch(Careless::write), "scratch is written beyond its end");
}

}  // namespace
