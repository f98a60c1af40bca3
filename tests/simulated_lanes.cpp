// SPDX-License-Identifier: Apache-2.0
// The row executor's kernels as a GPU runs them, lanes and all, on the host: with lane groups of 32 and of 64.
#include "simulated_lanes.hpp"

#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/norm.hpp>
#include <kfuse/fused/stage/rope.hpp>
#include <kfuse/fused/stage/softmax.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::load;
using kfuse::store;
using namespace kfuse::test;

using Lanes32 = SimulatedSpace<32>;
using Lanes64 = SimulatedSpace<64>;

// A row stage whose sum is more than a number, so that the order of merging shows: y = (x - mean) / deviation, with
// merged means and squares (Chan, Golub, LeVeque 1979).
struct Standardize {
  using stage = kfuse::RowStage;
  template <class Real>
  struct Moments {
    Real count, mean, squares;
  };
  template <class Real>
  KOKKOS_FUNCTION Moments<Real> identity() const {
    return {0, 0, 0};
  }
  template <class Real>
  KOKKOS_FUNCTION void merge(Moments<Real>& a, Moments<Real> const& b) const {
    Real const count = a.count + b.count, apart = b.mean - a.mean;
    if (b.count == 0) return;
    a.squares += b.squares + apart * apart * a.count * b.count / count;
    a.mean += apart * b.count / count;
    a.count = count;
  }
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(Moments<Real>& sum, X const& x, kfuse::Place) const {
    for (auto v : x) merge(sum, Moments<Real>{1, v, 0});
  }
  template <class Real>
  KOKKOS_FUNCTION Moments<Real> finish(Moments<Real> sum, int) const {
    return {sum.count, sum.mean, Kokkos::sqrt(sum.squares / sum.count)};
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, kfuse::Place, Moments<typename X::Real> const& row) const {
    for (auto& v : x) v = (v - row.mean) / row.squares;
  }
};

std::vector<double> standardized(std::vector<double> const& x, int columns) {
  std::vector<double> y(x.size());
  for (std::size_t first = 0; first < x.size(); first += columns) {
    double mean = 0, squares = 0;
    for (int c = 0; c < columns; ++c) mean += x[first + c] / columns;
    for (int c = 0; c < columns; ++c) squares += (x[first + c] - mean) * (x[first + c] - mean) / columns;
    for (int c = 0; c < columns; ++c) y[first + c] = (x[first + c] - mean) / std::sqrt(squares);
  }
  return y;
}

// Rows in host memory, `shift` elements after a 16-byte boundary.
template <class Element>
struct Rows {
  std::vector<Element> memory;
  kfuse::Tensor<Element, 2> tensor;

  Rows(int rows, int columns, std::vector<double> const& values, int shift = 0)
      : memory(std::size_t(rows) * columns + 32, kfuse::from_real<Element>(NAN)) {
    auto const past = reinterpret_cast<std::uintptr_t>(memory.data()) % 16 / sizeof(Element);
    tensor = kfuse::make_tensor(memory.data() + (16 / sizeof(Element) - past) + shift, rows, columns);
    for (std::size_t i = 0; i < values.size(); ++i) tensor.data[i] = kfuse::from_real<Element>(values[i]);
  }
  std::vector<double> values() const {
    std::vector<double> v(tensor.size());
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = kfuse::to_real(tensor.data[i]);
    return v;
  }
};

// How a chain is run: how far the memory is from where wide access is possible, and whether segments get own teams.
struct Run {
  int shift = 0;
  bool split = false;
};
template <class Space, class Element, class Stages>
std::vector<double> run(std::vector<double> const& x, int columns, Stages const& stages, Run how = {}) {
  int const rows = int(x.size()) / columns;
  Rows<Element> const in(rows, columns, x, how.shift);
  auto const launched = [&](Space const& space) {
    Rows<Element> const out(rows, columns, {}, how.shift);
    kfuse::Workspace<Space> workspace(1 << 16);
    kfuse::Ledger ledger;
    kfuse::fuse(space, "test", load(in.tensor) | stages | store(out.tensor), workspace);
    REQUIRE((ledger.launches() > 1) == how.split);
    return out.values();
  };
  return in_both_orders<Space>(launched, {.lanes = how.split ? 1 << 20 : 512});
}

TEST_CASE_TEMPLATE("rows of all layouts agree with the definition in double, and with themselves", Space, Lanes32,
                   Lanes64) {
  // Sub-group rows, whole groups, teams; several rows to a team; a row in passes.
  for (int const columns : {4, 28, 60, 128, 200, 512, 1020, 2048, 4096, 8188, 16384, 20000}) {
    CAPTURE(columns);
    int const rows = columns < 300 ? 37 : columns < 3000 ? 5 : 2;
    auto const x = random_values<float>(std::size_t(rows) * columns, columns, -1, 3);
    auto const y = run<Space, float>(x, columns, Standardize());
    CHECK(deviation(y, standardized(x, columns), 1) <= 1e-5);
    // The last row alone, and the same in memory that allows no wide access: the same bits.
    std::vector<double> const last(x.end() - columns, x.end());
    CHECK(run<Space, float>(last, columns, Standardize()) == std::vector(y.end() - columns, y.end()));
    CHECK(run<Space, float>(x, columns, Standardize(), {.shift = 1}) == y);
  }
}

TEST_CASE_TEMPLATE("rows of any width agree with the definition in double", Space, Lanes32, Lanes64) {
  for (int const columns : {1, 3, 31, 33, 129, 257, 1023, 4097}) {
    CAPTURE(columns);
    int const rows = columns < 300 ? 19 : 2;
    auto const x = random_values<bf16>(std::size_t(rows) * columns, columns);
    std::vector<double> expected(x.size());
    for (int r = 0; r < rows; ++r) {
      double squares = 0;
      for (int c = 0; c < columns; ++c) squares += x[r * columns + c] * x[r * columns + c] / columns;
      for (int c = 0; c < columns; ++c) expected[r * columns + c] = x[r * columns + c] / std::sqrt(squares + 1e-6);
    }
    CHECK(deviation(run<Space, bf16>(x, columns, kfuse::RootMeanSquare(1e-6)), expected) <= tolerance<bf16>());
  }
}

TEST_CASE_TEMPLATE("a chain that reduces nothing reaches every value once, whatever the width and the alignment", Space,
                   Lanes32, Lanes64) {
  for (int const columns : {1, 7, 8, 100, 384, 511, 512, 4096, 5000}) {
    CAPTURE(columns);
    auto const x = random_values<bf16>(std::size_t(columns < 1000 ? 37 : 3) * columns, columns);
    std::vector<double> doubled(x);
    for (double& v : doubled) v *= 2;
    CHECK(run<Space, bf16>(x, columns, kfuse::scale(2)) == doubled);
    CHECK(run<Space, bf16>(x, columns, kfuse::scale(2), {.shift = 1}) == doubled);
  }
}

TEST_CASE_TEMPLATE("segments of a long row with a team each give the bits of one team", Space, Lanes32, Lanes64) {
  for (int const columns : {32772, 60001, 65540}) {
    CAPTURE(columns);
    auto const x = random_values<float>(2 * columns, 1);
    auto const whole = run<Space, float>(x, columns, Standardize());
    CHECK(deviation(whole, standardized(x, columns), 1) <= 1e-5);
    CHECK(run<Space, float>(x, columns, Standardize(), {.split = true}) == whole);
    CHECK(run<Space, float>(x, columns, Standardize(), {.shift = 1, .split = true}) == whole);
  }
}

TEST_CASE_TEMPLATE("a row in passes is right whatever is left of it for a lane at its end", Space, Lanes32, Lanes64) {
  // A segment of 16 packs for each of 512 lanes, and so many more for all of them, and one for the first.
  for (int const more : {0, 1, 2, 3, 4, 7}) {
    int const columns = 32768 + more * 2048 + 4;
    CAPTURE(columns);
    auto const x = random_values<float>(columns, more);
    auto const y = run<Space, float>(x, columns, Standardize());
    CHECK(deviation(y, standardized(x, columns), 1) <= 1e-5);
    CHECK(run<Space, float>(x, columns, Standardize(), {.shift = 1}) == y);
  }
}

// Adds the row's number, if that has been known all along.
struct AddRowNumber {
  using stage = kfuse::RowStage;
  static constexpr bool commutes = true;
  struct Wrong {
    int times;
  };
  template <class Real>
  KOKKOS_FUNCTION Wrong identity() const {
    return {0};
  }
  KOKKOS_FUNCTION std::ptrdiff_t prepare(std::ptrdiff_t row) const { return 3 * row + 1; }
  template <class X>
  KOKKOS_FUNCTION void accumulate(Wrong& wrong, X const&, kfuse::Place at, std::ptrdiff_t known) const {
    wrong.times += known != 3 * at.row + 1;
  }
  KOKKOS_FUNCTION void merge(Wrong& a, Wrong const& b) const { a.times += b.times; }
  KOKKOS_FUNCTION std::ptrdiff_t finish(Wrong const& wrong, int, std::ptrdiff_t row) const {
    return row + 1000000 * wrong.times;
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, kfuse::Place, std::ptrdiff_t number) const {
    for (auto& v : x) v += typename X::Real(number);
  }
};
TEST_CASE_TEMPLATE("a row stage may know which row it is for, before and after", Space, Lanes32, Lanes64) {
  for (int const columns : {1, 20, 128, 500, 4096, 20000, 33000}) {
    CAPTURE(columns);
    int const rows = columns < 1000 ? 37 : 3;
    auto const x = random_values<float>(std::size_t(rows) * columns, columns, 0, 1);
    std::vector<double> expected(x);
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] = float(x[i] + double(i / columns));
    CHECK(run<Space, float>(x, columns, AddRowNumber()) == expected);
    CHECK(run<Space, float>(x, columns, AddRowNumber(), {.shift = 1}) == expected);
    if (columns > 32768) CHECK(run<Space, float>(x, columns, AddRowNumber(), {.split = true}) == expected);
  }
}

// Adds what a user's stage draws: the number of the column.
struct AddDrawn {
  using stage = kfuse::ElementStage;
  static constexpr bool drawn = true;
  template <class X>
  KOKKOS_FUNCTION int fetch(kfuse::Place at) const {
    return at.column;
  }
  template <class X>
  KOKKOS_FUNCTION void take(X& x, int first, kfuse::Place) const {
    for (int i = 0; i < X::width; ++i) x[i] += typename X::Real(first + i);
  }
};
TEST_CASE_TEMPLATE("what a stage of a user's own draws reaches it in all kernels, before a reduction and after", Space,
                   Lanes32, Lanes64) {
  using kfuse::operator|;
  for (int const columns : {8, 20, 128, 500, 600, 1024, 1500, 2048, 4096, 20000, 33000}) {
    CAPTURE(columns);
    int const rows = columns < 1000 ? 37 : 3;
    auto const x = random_values<float>(std::size_t(rows) * columns, columns, 0, 1);
    std::vector<double> before(x), after(x), flat(x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      double const row = double(i / columns), column = double(i % columns);
      before[i] = float(float(x[i] + column) + row);
      after[i] = float(float(x[i] + row) + column);
      flat[i] = float(x[i] + column);
    }
    for (int const shift : {0, 1}) {
      CHECK(run<Space, float>(x, columns, AddDrawn() | AddRowNumber(), {.shift = shift}) == before);
      CHECK(run<Space, float>(x, columns, AddRowNumber() | AddDrawn(), {.shift = shift}) == after);
      CHECK(run<Space, float>(x, columns, AddDrawn(), {.shift = shift}) == flat);
    }
  }
}

// Segments share barriers by eights, in two turns.
TEST_CASE_TEMPLATE("rows of many segments are right, whole and split", Space, Lanes32, Lanes64) {
  for (int const columns : {8 * 32768, 9 * 32768 + 5, 20 * 32768 + 4}) {
    CAPTURE(columns);
    auto const x = random_values<float>(columns, columns, -1, 3);
    auto const whole = run<Space, float>(x, columns, Standardize());
    CHECK(deviation(whole, standardized(x, columns), 1) <= 1e-5);
    CHECK(run<Space, float>(x, columns, Standardize(), {.split = true}) == whole);
  }
}

TEST_CASE_TEMPLATE("rows may lie in place, in registers, in passes and without a reduction", Space, Lanes32, Lanes64) {
  for (int const columns : {20, 128, 2048, 4096, 20000, 33000, 70004})
    for (int const shift : {0, 1}) {
      CAPTURE(columns);
      CAPTURE(shift);
      int const rows = columns < 1000 ? 37 : 2;
      auto const x = random_values<float>(std::size_t(rows) * columns, columns, -1, 3);
      auto const in_place = [&](auto const& stages) {
        return in_both_orders<Space>([&](Space const& space) {
          Rows<float> const both(rows, columns, x, shift);
          kfuse::fuse(space, "test", load(both.tensor) | stages | store(both.tensor));
          return both.values();
        });
      };
      CHECK(in_place(Standardize()) == run<Space, float>(x, columns, Standardize(), {.shift = shift}));
      CHECK(in_place(kfuse::softmax()) == run<Space, float>(x, columns, kfuse::softmax(), {.shift = shift}));
      CHECK(in_place(kfuse::scale(2)) == run<Space, float>(x, columns, kfuse::scale(2), {.shift = shift}));
    }
}

TEST_CASE_TEMPLATE("two reductions of one row, in registers, in passes and split", Space, Lanes32, Lanes64) {
  for (int const columns : {40, 96, 1000, 5000, 33000}) {
    CAPTURE(columns);
    int const rows = columns < 100 ? 21 : 2;
    auto const x = random_values<float>(std::size_t(rows) * columns, columns, -9, 9);
    std::vector<double> expected(x.size());
    for (int r = 0; r < rows; ++r) {
      double sum = 0;
      for (int c = 0; c < columns; ++c) sum += std::exp(x[r * columns + c]);
      for (int c = 0; c < columns; ++c) expected[r * columns + c] = std::exp(x[r * columns + c]) / sum;
    }
    auto const y = run<Space, float>(x, columns, kfuse::softmax());
    CHECK(deviation(y, expected, 1e-6) <= 1e-5);
    CHECK(run<Space, float>(x, columns, kfuse::softmax(), {.shift = 3}) == y);
    if (columns > 32768) CHECK(run<Space, float>(x, columns, kfuse::softmax(), {.split = true}) == y);
  }
}

TEST_CASE("pairs of values that other lanes hold are found, in registers and without") {
  int const rows = 3, head_dim = 64, heads = 17, columns = heads * head_dim;
  auto const x = random_values<float>(rows * columns, 1);
  std::vector<float> table(4 * head_dim);
  for (int p = 0; p < 4; ++p)
    for (int i = 0; i < head_dim / 2; ++i) {
      table[p * head_dim + i] = std::cos(float(p * i));
      table[p * head_dim + head_dim / 2 + i] = std::sin(float(p * i));
    }
  std::vector<int> positions{2, 0, 3};
  std::vector<double> expected(x);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) {
      int const i = c % head_dim, half = head_dim / 2, pair = i % half;
      double const cosine = table[positions[r] * head_dim + pair], sine = table[positions[r] * head_dim + half + pair];
      double const* const here = &x[r * columns + c];
      expected[r * columns + c] =
          i < half ? here[0] * cosine - here[half] * sine : here[0] * cosine + here[-half] * sine;
    }
  auto const stage = kfuse::rope(kfuse::make_tensor(table.data(), 4, head_dim), kfuse::make_tensor(positions.data(), 3),
                                 {.head_dim = head_dim});
  CHECK(deviation(run<Lanes32, float>(x, columns, stage), expected, 0.1) <= 1e-5);
  CHECK(run<Lanes32, float>(x, columns, stage, {.shift = 1}) == run<Lanes32, float>(x, columns, stage));
}

}  // namespace
