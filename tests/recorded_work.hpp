// SPDX-License-Identifier: Apache-2.0
// Small work for the tests of replay.
#ifndef KFUSE_TESTS_RECORDED_WORK_HPP
#define KFUSE_TESTS_RECORDED_WORK_HPP

#include <kfuse/core/fuse.hpp>
#include <kfuse/core/replay.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/load_store.hpp>
#include <kfuse/fused/stage/norm.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support.hpp"

namespace kfuse::test {

using Matrix = decltype(view_of_nans<float>(1, 1));

constexpr bool has_graphs = !impl::Backend<Space>::is_host;

inline Matrix random_matrix(int rows, int columns, std::uint64_t seed) {
  return view_of<float>(random_values<float>(std::size_t(rows) * columns, seed), rows, columns);
}
inline std::vector<double> after(Space const& space, Matrix const& y) {
  space.fence();
  return download(y);
}

// h = x + r, y = rmsnorm(h); y = y + h: two launches.
struct Block {
  Matrix x, r, h, y;
  Kokkos::View<float*, Kokkos::LayoutRight, Space> weight;

  Block(int rows, int columns)
      : x(random_matrix(rows, columns, 1)),
        r(random_matrix(rows, columns, 2)),
        h(view_of_nans<float>(rows, columns)),
        y(view_of_nans<float>(rows, columns)),
        weight(view_of<float>(random_values<float>(columns, 3), columns)) {}
  void operator()(Space const& space) const {
    fuse(space, "test::norm", load(x) | add(r) | store(h) | rmsnorm(weight) | store(y));
    increase(space, y, h);
  }
  static void increase(Space const& space, Matrix const& to, Matrix const& by) {
    fuse(space, "test::increase", load(to) | add(by) | store(to));
  }
};

// x = x + 1, which shows how often it has run.
struct Step {
  Matrix x = view_of<float>(std::vector<double>(64, 0), 2, 32);
  Matrix one = view_of<float>(std::vector<double>(64, 1), 2, 32);
  void operator()(Space const& space) const { Block::increase(space, x, one); }
  double runs(Space const& space) const { return after(space, x)[5]; }
};

}  // namespace kfuse::test

#endif
