// SPDX-License-Identifier: Apache-2.0
// A kernel that uses every verb of a fragment, and what must come out. All numbers are small integers, so that every
// sum is exact.
#ifndef KFUSE_TESTS_FRAGMENT_HPP
#define KFUSE_TESTS_FRAGMENT_HPP

#include <kfuse/backends/fragment.hpp>
#include <kfuse/core/launch.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "support.hpp"

namespace kfuse::test {

// One lane group, two 32 x dims tiles x and y, and one result a verb.
constexpr int block = 16, tile_height = 32;
enum Verb { product, product_transposed, chained, row_maximum, row_sum, own_rows, verbs };

template <class Unit, class Element, int dims>
struct VerbsKernel {
  using Fragment = typename Unit::template Fragment<Element>;
  using Memory = impl::Tile<Element, dims>;
  static_assert(impl::IsFragment<Fragment>);
  static constexpr int threads = Fragment::lanes, registers = 128;
  static constexpr std::size_t tile_bytes = tile_height * Memory::pitch, scratch_bytes = 3 * tile_bytes + Memory::pitch;

  Element const* x;
  Element const* y;
  int columns;     // of x and y that exist
  float* results;  // [verbs, block, block]
  Element* moved;  // [tile_height, dims]: what store() left in a tile of x

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    impl::LanesOf<Team> const lanes(team);
    Fragment const fragment(lanes.rank());
    auto* memory = static_cast<std::byte*>(lanes.scratch(scratch_bytes));
    memory += (0 - reinterpret_cast<std::uintptr_t>(memory)) % Memory::pitch;
    Memory const x_tile{memory}, y_tile{memory + tile_bytes}, out_tile{memory + 2 * tile_bytes};
    for (int e = lanes.rank() * Memory::chunk; e < tile_height * dims; e += lanes.size() * Memory::chunk) {
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
    for (int e = lanes.rank(); e < tile_height * dims; e += lanes.size()) moved[e] = *out_tile.at(e / dims, e % dims);
  }

 private:
  template <class F>
  KOKKOS_FUNCTION void each_result(Fragment const& fragment, typename Fragment::Sums& sums, Verb verb,
                                   F const& f) const {
    fragment.for_each(sums,
                      [&](Entry at, float& v) { results[(verb * block + at.row) * block + at.column] = f(at, v); });
  }
  KOKKOS_FUNCTION void put(Fragment const& fragment, typename Fragment::Sums& sums, Verb verb) const {
    each_result(fragment, sums, verb, [](Entry, float v) { return v; });
  }
};

using Matrix = std::vector<double>;

// sums += a b, with a(i, k) = x(r + i, c + k) and b(k, j) = at_b(k, j).
template <class B>
void add_product(Matrix& sums, Matrix const& x, int dims, int r, int c, B const& at_b) {
  for (int i = 0; i < block; ++i)
    for (int j = 0; j < block; ++j)
      for (int k = 0; k < block; ++k) sums[i * block + j] += x[(r + i) * dims + c + k] * at_b(k, j);
}
inline Matrix integers(std::size_t count, std::uint64_t seed, double largest) {
  auto values = random_values(count, seed, -largest, largest + 1);
  for (double& v : values) v = std::floor(v);
  return values;
}

// What the kernel leaves.
struct VerbsResult {
  Matrix verb[verbs];
  Matrix moved;

  VerbsResult() = default;
  VerbsResult(Matrix const& results, Matrix left) : moved(std::move(left)) {
    for (int i = 0; i < verbs; ++i)
      verb[i] = {results.begin() + i * block * block, results.begin() + (i + 1) * block * block};
  }
  friend bool operator==(VerbsResult const&, VerbsResult const&) = default;
};
template <int dims>
VerbsResult expected_verbs(Matrix x, Matrix y, int columns) {
  for (int e = 0; e < tile_height * dims; ++e)
    if (e % dims >= columns) x[e] = y[e] = 0;

  VerbsResult result;
  Matrix(&expected)[verbs] = result.verb;
  for (Matrix& m : expected) m.assign(block * block, 0);
  add_product(expected[product], x, dims, 16, 32, [&](int k, int j) { return y[k * dims + 16 + j]; });
  add_product(expected[product], x, dims, 0, 16, [&](int k, int j) { return y[(16 + k) * dims + 48 + j]; });
  Matrix& transposed = expected[product_transposed];
  add_product(transposed, x, dims, 16, 48, [&](int k, int j) { return y[(16 + j) * dims + 32 + k]; });
  add_product(expected[chained], transposed, block, 0, 0, [&](int k, int j) { return y[(16 + k) * dims + j]; });
  Matrix& tile = result.moved = x;
  for (int i = 0; i < block; ++i) {
    auto const row = expected[product].begin() + i * block;
    for (int j = 0; j < block; ++j) {
      expected[row_maximum][i * block + j] = *std::max_element(row, row + block);
      expected[row_sum][i * block + j] = std::accumulate(row, row + block, 0.0);
      expected[own_rows][i * block + j] = i;
      tile[(16 + i) * dims + 16 + j] = row[j];
    }
  }
  return result;
}
inline void check_verbs(VerbsResult const& actual, VerbsResult const& expected) {
  for (int i = 0; i < verbs; ++i) {
    CAPTURE(i);
    CHECK(actual.verb[i] == expected.verb[i]);
  }
  CHECK(actual.moved == expected.moved);
}

}  // namespace kfuse::test

#endif
