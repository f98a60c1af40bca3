// SPDX-License-Identifier: Apache-2.0
// The verbs of this build's matrix fragment against plain loops.
#include "fragment.hpp"

#include <doctest/doctest.h>

#include <type_traits>

namespace {

using kfuse::bf16;
using kfuse::fp16;
using namespace kfuse::test;

template <class Element, int dims>
void run_verbs(int columns) {
  using Unit = kfuse::impl::MatrixUnit<Space>;
  if constexpr (!std::is_void_v<Unit>) {
    Matrix const x = integers(tile_height * dims, 1, 2), y = integers(tile_height * dims, 2, 2);
    auto const x_view = view_of<Element>(x, tile_height, dims), y_view = view_of<Element>(y, tile_height, dims);
    auto const results = view_of_nans<float>(int(verbs), block, block);
    auto const moved = view_of_nans<Element>(tile_height, dims);
    using Kernel = VerbsKernel<Unit, Element, dims>;
    Space const space = another_instance();
    kfuse::impl::launch(space, "test::fragment", 1, Kernel::scratch_bytes,
                        Kernel{x_view.data(), y_view.data(), columns, results.data(), moved.data()});
    check_verbs({download(results), download(moved)}, expected_verbs<dims>(x, y, columns));
  }
}

TEST_CASE_TEMPLATE("fragments multiply, reduce and move what plain loops do", Element, bf16, fp16) {
  run_verbs<Element, 64>(64);
  run_verbs<Element, 64>(56);
  run_verbs<Element, 128>(128);
}

TEST_CASE("chunks of a tile keep their row and lie in different banks down a column") {
  using Memory = kfuse::impl::Tile<bf16, 64>;
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 64; column += 8) {
      CHECK(Memory::offset(row, column) / Memory::pitch == row);
      CHECK(Memory::offset(row, column + 7) == Memory::offset(row, column) + 14);
      for (int other = row / 8 * 8; other < row; ++other)
        CHECK(Memory::offset(row, column) % 128 != Memory::offset(other, column) % 128);
    }
}

}  // namespace
