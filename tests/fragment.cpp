// SPDX-License-Identifier: Apache-2.0
// The verbs of the matrix fragments against plain loops. All numbers are small integers, so that every sum is exact.
#include <kfuse/backends/fragment.hpp>
#include <kfuse/core/launch.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::Entry;
using kfuse::fp16;
using namespace kfuse::test;

// One lane group, two 32 x dims tiles x and y, and one result a verb.
constexpr int n = 16, height = 32;
enum Verb { product, product_transposed, chained, row_maximum, row_sum, own_rows, verbs };

template <class Unit, class Element, int dims>
struct VerbsKernel {
  using Fragment = typename Unit::template Fragment<Element>;
  using Memory = kfuse::impl::Tile<Element, dims>;
  static_assert(kfuse::impl::IsFragment<Fragment>);
  static constexpr int threads = Fragment::lanes, registers = 128;
  static constexpr std::size_t tile_bytes = height * Memory::pitch, scratch_bytes = 3 * tile_bytes + Memory::pitch;

  Element const* x;
  Element const* y;
  int columns;     // of x and y that exist
  float* results;  // [verbs, n, n]
  Element* moved;  // [height, dims]: what store() left in a tile of x

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    kfuse::impl::LanesOf<Team> const lanes(team);
    Fragment const fragment(lanes.rank());
    auto* memory = static_cast<std::byte*>(lanes.scratch(scratch_bytes));
    memory += (0 - reinterpret_cast<std::uintptr_t>(memory)) % Memory::pitch;
    Memory const x_tile{memory}, y_tile{memory + tile_bytes}, out_tile{memory + 2 * tile_bytes};
    for (int e = lanes.rank() * Memory::chunk; e < height * dims; e += lanes.size() * Memory::chunk) {
      bool const exists = e % dims < columns;
      Unit::AsyncCopy::start(x_tile.at(e / dims, e % dims), x + e, exists);
      Unit::AsyncCopy::start(y_tile.at(e / dims, e % dims), y + e, exists);
      Unit::AsyncCopy::start(out_tile.at(e / dims, e % dims), x + e, exists);
    }
    Unit::AsyncCopy::wait();
    lanes.barrier();

    typename Fragment::Sums sums, transposed, second;
    fragment.multiply_add(sums, fragment.load_a(x_tile, 16, 32), fragment.load_b(y_tile, 0, 16));
    fragment.multiply_add(sums, fragment.load_a(x_tile, 0, 16), fragment.load_b(y_tile, 16, 48));
    put(fragment, sums, product);
    fragment.multiply_add(transposed, fragment.load_a(x_tile, 16, 48), fragment.load_b_transposed(y_tile, 16, 32));
    put(fragment, transposed, product_transposed);
    fragment.multiply_add(second, fragment.as_operand(transposed), fragment.load_b(y_tile, 16, 0));
    put(fragment, second, chained);

    float high[Fragment::own_rows], sum[Fragment::own_rows] = {};
    for (float& v : high) v = -1e30f;
    fragment.for_each(sums, [&](Entry at, float& v) {
      high[at.own] = Kokkos::max(high[at.own], v);
      sum[at.own] += v;
    });
    fragment.reduce_rows(lanes, high, [](float a, float b) { return Kokkos::max(a, b); });
    fragment.reduce_rows(lanes, sum, [](float a, float b) { return a + b; });
    each_result(fragment, sums, row_maximum, [&](Entry at, float) { return high[at.own]; });
    each_result(fragment, sums, row_sum, [&](Entry at, float) { return sum[at.own]; });
    each_result(fragment, sums, own_rows, [&](Entry at, float) { return float(fragment.own_row(at.own)); });

    fragment.store(sums, out_tile, 16, 16);
    lanes.barrier();
    for (int e = lanes.rank(); e < height * dims; e += lanes.size()) moved[e] = *out_tile.at(e / dims, e % dims);
  }

 private:
  template <class F>
  KOKKOS_FUNCTION void each_result(Fragment const& fragment, typename Fragment::Sums& sums, Verb verb,
                                   F const& f) const {
    fragment.for_each(sums, [&](Entry at, float& v) { results[(verb * n + at.row) * n + at.column] = f(at, v); });
  }
  KOKKOS_FUNCTION void put(Fragment const& fragment, typename Fragment::Sums& sums, Verb verb) const {
    each_result(fragment, sums, verb, [](Entry, float v) { return v; });
  }
};

using Matrix = std::vector<double>;

// sums += a b, with a(i, k) = x(r + i, c + k) and b(k, j) = at_b(k, j).
template <class B>
void add_product(Matrix& sums, Matrix const& x, int dims, int r, int c, B const& at_b) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) sums[i * n + j] += x[(r + i) * dims + c + k] * at_b(k, j);
}
Matrix integers(std::size_t count, std::uint64_t seed, double largest) {
  auto values = random_values(count, seed, -largest, largest + 1);
  for (double& v : values) v = std::floor(v);
  return values;
}

template <class Element, int dims>
void check_verbs(int columns) {
  using Unit = kfuse::impl::MatrixUnit<Space>;
  if constexpr (!std::is_void_v<Unit>) {
    Matrix x = integers(height * dims, 1, 2), y = integers(height * dims, 2, 2);
    auto const x_view = view_of<Element>(x, height, dims), y_view = view_of<Element>(y, height, dims);
    auto const results = view_of_nans<float>(int(verbs), n, n);
    auto const moved = view_of_nans<Element>(height, dims);
    using Kernel = VerbsKernel<Unit, Element, dims>;
    Space const space = another_instance();
    kfuse::impl::launch(space, "test::fragment", 1, Kernel::scratch_bytes,
                        Kernel{x_view.data(), y_view.data(), columns, results.data(), moved.data()});
    for (int e = 0; e < height * dims; ++e)
      if (e % dims >= columns) x[e] = y[e] = 0;

    Matrix expected[verbs];
    for (Matrix& m : expected) m.assign(n * n, 0);
    add_product(expected[product], x, dims, 16, 32, [&](int k, int j) { return y[k * dims + 16 + j]; });
    add_product(expected[product], x, dims, 0, 16, [&](int k, int j) { return y[(16 + k) * dims + 48 + j]; });
    Matrix& transposed = expected[product_transposed];
    add_product(transposed, x, dims, 16, 48, [&](int k, int j) { return y[(16 + j) * dims + 32 + k]; });
    add_product(expected[chained], transposed, n, 0, 0, [&](int k, int j) { return y[(16 + k) * dims + j]; });
    Matrix tile = x;
    for (int i = 0; i < n; ++i) {
      auto const row = expected[product].begin() + i * n;
      for (int j = 0; j < n; ++j) {
        expected[row_maximum][i * n + j] = *std::max_element(row, row + n);
        expected[row_sum][i * n + j] = std::accumulate(row, row + n, 0.0);
        expected[own_rows][i * n + j] = i;
        tile[(16 + i) * dims + 16 + j] = row[j];
      }
    }
    auto const actual = download(results);
    for (int verb = 0; verb < verbs; ++verb) {
      CAPTURE(verb);
      CHECK(Matrix(actual.begin() + verb * n * n, actual.begin() + (verb + 1) * n * n) == expected[verb]);
    }
    CHECK(download(moved) == tile);
  }
}

TEST_CASE_TEMPLATE("fragments multiply, reduce and move what plain loops do", Element, bf16, fp16) {
  check_verbs<Element, 64>(64);
  check_verbs<Element, 64>(56);
  check_verbs<Element, 128>(128);
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
