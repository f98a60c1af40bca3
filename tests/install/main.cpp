// SPDX-License-Identifier: Apache-2.0
// What a user's program looks like: y = x + r in one kernel, over plain Views.
#include <kfuse/core/check.hpp>
#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/load_store.hpp>
#include <kfuse/models/layer_config.hpp>

#include <Kokkos_Core.hpp>

#include <cstdio>

#include <core/check.hpp>

using Matrix = Kokkos::View<float**, Kokkos::LayoutRight>;

int main(int argc, char** argv) {
  Kokkos::ScopeGuard kokkos(argc, argv);
  Kokkos::DefaultExecutionSpace space;
  int const rows = 7, columns = kfuse::preset("gpt2").hidden;

  Matrix x("x", rows, columns), r("r", rows, columns), y("y", rows, columns);
  Kokkos::deep_copy(x, 1.5f);
  Kokkos::deep_copy(r, 2.25f);
  kfuse::fuse(space, "user::add", kfuse::load(x) | kfuse::add(r) | kfuse::store(y));
  space.fence();

  auto const result = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), y);
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column)
      if (!close(result(row, column), 3.75f)) {
        std::printf("y(%d, %d) is %g, not 3.75\n", row, column, result(row, column));
        return 1;
      }

  try {
    kfuse::fuse(space, "user::add", kfuse::load(x) | kfuse::add(r) | kfuse::store(Matrix("z", rows, columns + 1)));
  } catch (kfuse::Error const&) {
    return 0;
  }
  std::puts("a y of another shape was not refused");
  return 1;
}
