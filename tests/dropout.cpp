// SPDX-License-Identifier: Apache-2.0
// The operator; the stage's random numbers are in random.cpp.
#include <kfuse/core/replay.hpp>
#include <kfuse/fused/dropout.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "dropped.hpp"
#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::dropout;
using kfuse::DropoutOptions;
using kfuse::fp16;
using kfuse::RandomState;
using namespace kfuse::test;

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST_CASE("dropout is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("dropout", {}, [&]<class Element>(RandomCase& c) {
    constexpr double probabilities[] = {0, 0x1p-40, 0.1, 0.5, 0.9, 1};
    double const p = probabilities[c.seed % 6];
    RandomState const state{c.seed, c.seed >> 16};
    auto const x = c.values<Element>(0);
    auto const in = c.matrix<Element>(0, x), out = c.matrix<Element>(1);
    dropout(space, in.const_view(), out.view(), {.p = p, .random = state});
    c.compare("y", out, dropped(x, c.columns, p, state));
    c.unchanged("x", in, x);
    auto const y = out.values();
    dropout(space, in.const_view(), in.view(), {.p = p, .random = state});
    c.unchanged("y in place of x", in, y);
  });
}

// CASES P31
TEST_CASE_TEMPLATE("dropout of nothing is the identity, and of everything exactly zero", Element, double, float, bf16,
                   fp16) {
  std::vector<double> x = random_values<Element>(3 * 100, 1);
  x[0] = infinity, x[1] = -infinity, x[2] = NAN, x[3] = -0.0, x[4] = largest<Element>(), x[5] = ulp<Element>(0);
  auto const in = view_of<Element>(x, 3, 100), y = view_of_nans<Element>(3, 100);
  for (int call = 0; call < 2; ++call) {  // evaluation in between does not turn training off, nor on
    dropout(Space(), in, y, {.p = 0});
    CHECK(deviation(download(y), download(in), 0) == 0);
    CHECK(std::signbit(download(y)[3]));
    dropout(Space(), in, y, {.p = 1});
    for (double const v : download(y)) CHECK((v == 0 && !std::signbit(v)));
    dropout(Space(), in, y, {.p = 0.5});
    auto const half = download(y);
    CHECK(std::abs(double(std::count(half.begin(), half.end(), 0.0)) / 300 - 0.5) < 0.1);
  }
}
TEST_CASE("a quarter is dropped, and the rest is scaled") {
  int const rows = 1024, columns = 1024;
  auto const ones = view_of<float>(std::vector<double>(rows * columns, 1), rows, columns);
  auto const y = view_of_nans<float>(rows, columns);
  dropout(Space(), ones, y, {.p = 0.25, .random = {3, 0}});
  std::size_t kept = 0, wrong = 0;
  for (double const v : download(y)) {
    kept += v != 0;
    wrong += v != 0 && std::abs(v - 4.0 / 3) > 1e-6;
  }
  CHECK(wrong == 0);
  CHECK(std::abs(double(kept) / (rows * columns) - 0.75) < 0.0017);
}

double agreement(std::vector<double> const& a, std::vector<double> const& b) {
  std::size_t same = 0;
  for (std::size_t i = 0; i < a.size(); ++i) same += a[i] == b[i];
  return double(same) / double(a.size());
}

// CASES P32. That the random cases agree with numbers made apart from the library says that no address, thread or
// process counts.
TEST_CASE("what is dropped follows from seed and offset, not from calls before, types or layouts") {
  int const rows = 1024, columns = 1024;
  std::vector<double> const ones(rows * columns, 1);
  GuardedMatrix<float> const x(rows, columns, ones), y(rows, columns), y_apart(rows, columns, Place2D{1, 3});
  GuardedMatrix<bf16> const narrow(rows, columns, ones, {3, 5}), y_narrow(rows, columns, Place2D{1, 0});
  auto const of = [&](RandomState const& state) {
    dropout(Space(), x.const_view(), y.view(), {.p = 0.5, .random = state});
    return y.values();
  };
  auto const first = of({1, 0});
  CHECK(std::abs(agreement(first, of({2, 0})) - 0.5) < 0.002);
  CHECK(std::abs(agreement(first, of({1, 1})) - 0.5) < 0.002);
  for (int calls = 0; calls < 5; ++calls) of({9, std::uint64_t(calls)});
  CHECK(of({1, 0}) == first);
  dropout(Space(), x.const_view(), y_apart.view(), {.p = 0.5, .random = {1, 0}});
  CHECK(y_apart.values() == first);
  dropout(Space(), narrow.const_view(), y_narrow.view(), {.p = 0.5, .random = {1, 0}});
  CHECK(y_narrow.values() == first);
  dropout(Space(), narrow.const_view(), y.view(), {.p = 0.5, .random = {1, 0}});  // from bf16 to float
  CHECK(y.values() == first);
}
TEST_CASE("the backward pass drops what the forward pass dropped") {
  auto const x = view_of<float>(random_values<float>(7 * 333, 1, 1, 2), 7, 333);
  auto const gradient = view_of<float>(random_values<float>(7 * 333, 2, 1, 2), 7, 333);
  DropoutOptions const options{.p = 0.3, .random = {11, 4}};
  dropout(Space(), x, x, options);
  dropout(Space(), gradient, gradient, options);
  auto const y = download(x), d = download(gradient);
  int differ = 0;
  for (std::size_t i = 0; i < y.size(); ++i) differ += (y[i] == 0) != (d[i] == 0);
  CHECK(differ == 0);
}

// CASES P42
TEST_CASE("a replay draws new numbers when their state in memory moves on") {
  Space const space = another_instance();
  int const rows = 1024, columns = 1024;
  auto const x = view_of<float>(std::vector<double>(rows * columns, 1), rows, columns);
  auto const y = view_of_nans<float>(rows, columns);
  Kokkos::View<RandomState, Space> const state("kfuse::test::state");
  auto const values = [&](auto const& run) {
    upload(y, std::vector<double>(rows * columns, NAN));
    run();
    space.fence("kfuse::test: dropout is done");
    return download(y);
  };
  kfuse::Replay<Space> replay;
  replay.record([=](Space const& s) { dropout(s, x, y, {.p = 0.5, .random = state}); });
  auto const replayed = [&](RandomState const& now) {
    Kokkos::deep_copy(state, now);
    return values([&] { replay.run(space); });
  };
  auto const eager = [&](RandomState const& now) {
    return values([&] { dropout(space, x, y, {.p = 0.5, .random = now}); });
  };
  auto const first = replayed({7, 0}), second = replayed({7, 1});
  CHECK(std::abs(agreement(first, second) - 0.5) < 0.002);
  CHECK(replayed({7, 0}) == first);
  CHECK(replayed({7, 1}) == second);
  CHECK(eager({7, 0}) == first);
  CHECK(eager({7, 1}) == second);
}

// CASES P11
TEST_CASE("values over the state of their random numbers are refused, and so is a state out of reach") {
  Kokkos::View<float*, Space> const memory("memory", 64);
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4);
  Kokkos::View<RandomState, Space, Kokkos::MemoryUnmanaged> const state(
      reinterpret_cast<RandomState*>(memory.data() + 16));
  for (int const first : {5, 8, 16, 19}) {
    auto const y = kfuse::make_tensor(memory.data() + first, 3, 4);
    CHECK(contains(error_of([&] { dropout(Space(), x, y, {.random = state}); }), "kfuse::dropout: random: lies in y "));
    CHECK(contains(error_of([&] {
                     kfuse::fuse(Space(), "user::drop", kfuse::load(x) | kfuse::dropout(0.5, state) | kfuse::store(y));
                   }),
                   "user::drop: random: lies in store "));
  }
  CHECK(download(memory) == std::vector<double>(64, 0));
  for (int const first : {4, 20})
    dropout(Space(), x, kfuse::make_tensor(memory.data() + first, 3, 4), {.random = state});

  RandomState value;
  Kokkos::View<RandomState, Elsewhere, Kokkos::MemoryUnmanaged> const far(&value);
  CHECK(contains(error_of([&] { dropout(Space(), x, x, {.random = far}); }),
                 "kfuse::dropout: random: the execution space cannot reach"));
}

TEST_CASE("dropout of an empty matrix writes nothing") {
  dropout(Space(), view_of_nans<float>(0, 4), view_of_nans<float>(0, 4));
  dropout(Space(), view_of_nans<float>(4, 0), view_of_nans<float>(4, 0));
}

TEST_CASE("dropout refuses what does not fit, and writes nothing") {
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4), y = view_of_nans<float>(3, 4);
  for (double const p : {-0.1, 1.1, double(NAN), infinity})
    CHECK(contains(error_of([&] { dropout(Space(), x, y, {.p = p}); }),
                   "kfuse::dropout: dropout: the probability to drop a value must lie in [0, 1], and is "));
  CHECK(contains(error_of([&] { dropout(Space(), x, view_of_nans<float>(4, 3)); }),
                 "kfuse::dropout: y: shape [4, 3] does not match"));
  auto const shifted = Kokkos::subview(y, Kokkos::pair(0, 2), Kokkos::ALL);
  CHECK(contains(error_of([&] { dropout(Space(), shifted, Kokkos::subview(y, Kokkos::pair(1, 3), Kokkos::ALL)); }),
                 "kfuse::dropout: y: overlaps x"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("dropout moves its arguments once, and no mask") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 64}, {64, 1}};
  CHECK(kfuse::dropout_traffic(Space(), x, x).bytes() == 2 * 10 * 64 * 2);
}

}  // namespace
