// SPDX-License-Identifier: Apache-2.0
// Kernels of one instance take effect one after the other, wherever what they share lies and whatever stands between
// them: a launch may begin before the one before it has ended, and must not show it.
#include <kfuse/core/blas.hpp>
#include <kfuse/fused/embedding.hpp>
#include <kfuse/fused/fuse_linear.hpp>
#include <kfuse/fused/matmul.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "recorded_work.hpp"

namespace {

using namespace kfuse;
using namespace kfuse::test;

// b = a + 1, and a = the rows of b from the last to the first: the first teams read what the last ones before them have
// written, and write what the last ones before them have read. On a GPU there are more teams than find room at once.
struct ThereAndBack {
  static constexpr int columns = 1024;
  int rows = has_graphs ? 16384 : 64;
  Matrix a = view_of<float>(values(0), rows, columns), b = view_of_nans<float>(rows, columns);
  Matrix one = view_of<float>(std::vector<double>(std::size_t(rows) * columns, 1), rows, columns);
  Kokkos::View<int*, Kokkos::LayoutRight, Space> backwards = view_of<int>(numbers(), rows);

  // Row r holds r, and so much more, times the column's number modulo 8.
  std::vector<double> values(int more, bool turned = false) const {
    std::vector<double> v(std::size_t(rows) * columns);
    for (std::size_t i = 0; i < v.size(); ++i) {
      int const row = int(i / columns);
      v[i] = (turned ? rows - 1 - row : row) * double(i % columns % 8) + more;
    }
    return v;
  }
  std::vector<double> numbers() const {
    std::vector<double> v;
    for (int r = 0; r < rows; ++r) v.push_back(rows - 1 - r);
    return v;
  }
  template <class Between>
  void step(Space const& space, Between const& between) const {
    fuse(space, "test::there", load(a) | add(one) | store(b));
    between();
    embedding(space, b, backwards, a);
    between();
  }
  // After `steps` of them.
  void check(Space const& space, int steps) const { CHECK(after(space, a) == values(steps, steps % 2 == 1)); }
};

}  // namespace

TEST_CASE("kernels one after the other see all of what the one before has written, and change nothing it reads") {
  Space const space = another_instance();
  ThereAndBack const work;
  for (int i = 0; i < 5; ++i) work.step(space, [] {});
  work.check(space, 5);
  Replay<Space> replay;
  replay.record([&](Space const& on) {
    for (int i = 0; i < 3; ++i) work.step(on, [] {});
  });
  work.check(space, 8);
  for (int i = 0; i < 3; ++i) replay.run(space);
  work.check(space, 17);
}

TEST_CASE("the same with kernels, copies and products of others between them") {
  Space const space = another_instance();
  ThereAndBack const work;
  auto const copy = view_of_nans<float>(work.rows, work.columns);
  Blas<Space> blas(space);
  int const n = 64;  // b = b times the unit matrix, 64 columns at a time
  std::vector<double> entries(n * n, 0);
  for (int i = 0; i < n; ++i) entries[std::size_t(i) * n + i] = 1;
  auto const unit = view_of<float>(entries, n, n);
  auto const members = work.rows * work.columns / (n * n);
  auto const blocks = [&](Matrix const& m) { return make_tensor<float>(m.data(), members, n, n); };
  auto const step = [&](Space const& on) {
    work.step(on, [] {});
    fuse(on, "test::there", load(work.a) | add(work.one) | store(work.b));
    Kokkos::deep_copy(on, copy, work.b);
    Kokkos::deep_copy(on, work.b, -1.0f);
    matmul(on, blas, blocks(copy), Tensor<float const, 3>{unit.data(), {members, n, n}, {0, n, 1}}, blocks(work.b));
    embedding(on, work.b, work.backwards, work.a);
  };
  for (int i = 0; i < 3; ++i) step(space);
  work.check(space, 6);
  Replay<Space> replay;
  replay.record(step);
  work.check(space, 8);
  for (int i = 0; i < 3; ++i) replay.run(space);
  work.check(space, 14);
}

TEST_CASE_TEMPLATE("products that fetch their weight before the kernel before them has ended use what it has written",
                   Element, float, bf16) {
  int const rows = 16, n = has_graphs ? 4096 : 128;
  std::vector<double> turned(std::size_t(n) * n, 0), start, ones(std::size_t(rows) * n, 1);
  for (int c = 0; c < n; ++c) turned[std::size_t(c) * n + n - 1 - c] = 1;  // the columns from the last to the first
  for (int i = 0; i < rows * n; ++i) start.push_back((i / n + i % n % 7) % 8);
  auto const w = view_of<Element>(turned, n, n), a = view_of<Element>(start, rows, n);
  auto const b = view_of_nans<Element>(rows, n), one = view_of<Element>(ones, rows, n);
  Replay<Space> replay;
  Space const& space = replay.space();
  Blas<Space> blas(space);
  Workspace<Space> workspace(256);
  auto const step = [&](Space const& on) {
    auto const turn = [&](auto const& from, auto const& to) {
      fuse_linear(on, blas, workspace, "test::turn", load(from), w, add(one) | store(to),
                  {.weights = WeightsAre::constant});
    };
    turn(a, b);
    turn(b, a);
  };
  auto const check = [&](int steps) {
    std::vector<double> expected = start;
    for (double& v : expected) v += 2 * steps;
    space.fence();
    CHECK(download(a) == expected);
  };
  for (int i = 0; i < 3; ++i) step(space);
  check(3);
  replay.record([&](Space const& on) {
    for (int i = 0; i < 4; ++i) step(on);
  });
  check(7);
  for (int i = 0; i < 2; ++i) replay.run(space);
  check(15);
}
