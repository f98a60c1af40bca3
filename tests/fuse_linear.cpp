// SPDX-License-Identifier: Apache-2.0
#include <kfuse/core/replay.hpp>
#include <kfuse/fused/fuse_linear.hpp>
#include <kfuse/fused/stage/dropout.hpp>
#include <kfuse/fused/stage/gate.hpp>
#include <kfuse/fused/stage/heads.hpp>
#include <kfuse/fused/stage/norm.hpp>
#include <kfuse/fused/stage/rope.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mirrored.hpp"
#include "support.hpp"

namespace {

using kfuse::add, kfuse::as_tensor, kfuse::bf16, kfuse::bias, kfuse::Blas, kfuse::fp16, kfuse::fuse_linear,
    kfuse::Ledger;
using kfuse::FuseLinearOptions, kfuse::FuseLinearPath, kfuse::load, kfuse::rmsnorm, kfuse::silu, kfuse::store;
using kfuse::GateLayout, kfuse::RopePairs, kfuse::WeightLayout, kfuse::WeightsAre, kfuse::Workspace;
using namespace kfuse::test;

constexpr double epsilon = 1e-5;

// y = silu(rmsnorm(x) w^T + b) + r, or of x as it is; w as [out, in].
struct Problem {
  int rows, in, out;
  bool normed;
  std::vector<double> x, scale, w, b, r;

  // Row `row` of what is multiplied.
  std::vector<double> operand(int row) const {
    std::vector<double> v(x.begin() + std::ptrdiff_t(row) * in, x.begin() + std::ptrdiff_t(row + 1) * in);
    if (!normed) return v;
    double squares = 0;
    for (double const e : v) squares += e * e;
    for (int k = 0; k < in; ++k) v[k] *= scale[k] / std::sqrt(squares / in + epsilon);
    return v;
  }
};

template <class Element>
Problem random_problem(int rows, int in, int out, bool normed) {
  auto const values = [](std::size_t n, int seed, double low = -1) { return random_values<Element>(n, seed, low, 1); };
  return {rows,
          in,
          out,
          normed,
          values(std::size_t(rows) * in, 1),
          values(in, 2, 0.5),
          values(std::size_t(out) * in, 3),
          values(out, 4),
          values(std::size_t(rows) * out, 5)};
}

// The largest error, relative to the sum of the magnitudes that rounding errors grow with; NaN wins.
double error_of_result(std::vector<double> const& y, Problem const& p) {
  double largest = 0;
  for (int row = 0; row < p.rows; ++row) {
    auto const v = p.operand(row);
    for (int o = 0; o < p.out; ++o) {
      double sum = p.b[o], size = std::abs(p.b[o]);
      for (int k = 0; k < p.in; ++k) {
        sum += v[k] * p.w[std::size_t(o) * p.in + k];
        size += std::abs(v[k] * p.w[std::size_t(o) * p.in + k]);
      }
      double const added = p.r[std::size_t(row) * p.out + o];
      double const expected = sum / (1 + std::exp(-sum)) + added;
      double const error = std::abs(y[std::size_t(row) * p.out + o] - expected) / (size + std::abs(added) + 1e-30);
      if (!(error <= largest)) largest = error;
    }
  }
  return largest;
}
// The operand, the product where it lies in memory, and the result are rounded; and there are sums of hundreds.
template <class Element>
constexpr double bound = 3.2 * tolerance<Element>();

// Runs p between guards, all matrices placed alike.
template <class Element>
std::vector<double> run(Space const& space, Problem const& p, Place2D place = {},
                        FuseLinearOptions const& options = {}) {
  Blas<Space> blas(space);
  Workspace<Space> workspace(1 << 22);
  workspace.poison(space);
  std::vector<double> w = p.w;
  bool const out_in = options.layout == WeightLayout::out_in;
  if (!out_in)
    for (int o = 0; o < p.out; ++o)
      for (int k = 0; k < p.in; ++k) w[std::size_t(k) * p.out + o] = p.w[std::size_t(o) * p.in + k];
  GuardedMatrix<Element> const x(p.rows, p.in, p.x, place), r(p.rows, p.out, p.r, place), y(p.rows, p.out, place);
  GuardedMatrix<Element> const weight(out_in ? p.out : p.in, out_in ? p.in : p.out, w, place);
  auto const scale = view_of<Element>(p.scale, p.in), b = view_of<Element>(p.b, p.out);
  auto const after = bias(b) | silu() | add(r.view()) | store(y.view());
  if (p.normed)
    fuse_linear(space, blas, workspace, "test::linear", load(x.view()) | rmsnorm(scale, {.epsilon = epsilon}),
                weight.view(), after, options);
  else
    fuse_linear(space, blas, workspace, "test::linear", load(x.view()), weight.view(), after, options);
  CHECK(y.guards_intact());
  CHECK(deviation(x.values(), p.x) == 0);
  CHECK(deviation(weight.values(), w) == 0);
  return y.values();
}

TEST_CASE_TEMPLATE("any number of rows, size and alignment agrees with the definition", Element, double, float, bf16,
                   fp16) {
  Space const space = another_instance();
  auto const draws = random_values(300, 7, 0, 1);
  for (int i = 0; i < 60; ++i) {
    double const* const draw = &draws[i * 5];
    int const rows = i % 4 == 3 ? 1 : 1 + int(draw[0] * 20);  // on both sides of what few rows are
    int const in = i % 5 == 4 ? 64 * (1 + int(draw[1] * 5)) : 1 + int(draw[1] * 300);
    int const out = i % 8 == 7 ? 1 : 1 + int(draw[2] * 130);
    Place2D const place{i % 3, i % 4 * 4};
    CAPTURE(rows);
    CAPTURE(in);
    CAPTURE(out);
    CAPTURE(i);
    FuseLinearOptions const options{draw[3] < 0.8 ? WeightLayout::out_in : WeightLayout::in_out,
                                    i % 2 ? WeightsAre::constant : WeightsAre::written_before};
    auto const p = random_problem<Element>(rows, in, out, draw[4] < 0.5);
    CHECK(error_of_result(run<Element>(space, p, place, options), p) <= bound<Element>);
  }
}

TEST_CASE_TEMPLATE("sizes of models agree with the definition", Element, double, float, bf16, fp16) {
  Space const space;
  for (int const rows : {1, 7, 16, 17}) {
    CAPTURE(rows);
    auto const p = random_problem<Element>(rows, 4096, 48, true);
    CHECK(error_of_result(run<Element>(space, p), p) <= bound<Element>);
  }
  auto const p = random_problem<Element>(2, 14336, 5, false);
  CHECK(error_of_result(run<Element>(space, p), p) <= bound<Element>);
}

// The definition holds for few rows in the type of the sums: nothing is rounded between.
TEST_CASE_TEMPLATE("few rows are rounded once", Element, bf16, fp16) {
  for (int const rows : {1, 3, 16}) {
    auto p = random_problem<Element>(rows, 300, 70, false);
    std::vector<double> const y = run<Element>(Space(), p);
    for (int row = 0; row < rows; ++row)
      for (int o = 0; o < p.out; ++o) {
        double sum = p.b[o];
        for (int k = 0; k < p.in; ++k) sum += p.x[row * p.in + k] * p.w[o * p.in + k];
        double const expected = sum / (1 + std::exp(-sum)) + p.r[row * p.out + o];
        double const rounded = decode(encode<Element>(expected));
        CHECK(std::abs(y[row * p.out + o] - rounded) <= std::abs(rounded) * 2 * tolerance<Element>() + 1e-5);
      }
  }
}

TEST_CASE_TEMPLATE("a row's bits depend on no other row, on how many there are, or on where they lie", Element, double,
                   float, bf16, fp16) {
  Space const space = another_instance();
  for (int const in : {75, 640})
    for (bool const normed : {false, true}) {
      CAPTURE(in);
      CAPTURE(normed);
      auto const p = random_problem<Element>(16, in, 37, normed);
      auto const all = run<Element>(space, p);
      for (int const rows : {1, 2, 3, 4, 5, 8, 9, 15, 16}) {
        auto part = p;
        part.rows = rows;
        part.x = {p.x.end() - rows * in, p.x.end()};
        part.r = {p.r.end() - rows * 37, p.r.end()};
        std::vector<double> const last(all.end() - rows * 37, all.end());
        CAPTURE(rows);
        CHECK(run<Element>(space, part) == last);
        CHECK(run<Element>(space, part, {1, 3}) == last);
      }
    }
}

// x w^T in double, and beside it what rounding errors grow with.
struct Product {
  std::vector<double> value, size;
  Product(std::vector<double> const& x, std::vector<double> const& w, int rows, int in, int out) {
    for (int row = 0; row < rows; ++row)
      for (int o = 0; o < out; ++o) {
        double sum = 0, magnitude = 1e-30;
        for (int k = 0; k < in; ++k) {
          double const term = x[std::size_t(row) * in + k] * w[std::size_t(o) * in + k];
          sum += term;
          magnitude += std::abs(term);
        }
        value.push_back(sum);
        size.push_back(magnitude);
      }
  }
};

TEST_CASE_TEMPLATE("gate and up of a product become one value", Element, double, float, bf16) {
  Space const space = another_instance();
  Blas<Space> blas(space);
  Workspace<Space> workspace(1 << 22);
  for (int const n : {1, 7, 33, 160})
    for (GateLayout const layout : {GateLayout::halves, GateLayout::interleaved}) {
      CAPTURE(n);
      CAPTURE(int(layout));
      int const in = 72;
      auto const values = random_values<Element>(20 * in, 1, -1, 1);
      auto const weights = random_values<Element>(std::size_t(2 * n) * in, 2, -1, 1);
      auto const w = view_of<Element>(weights, 2 * n, in);
      auto const factor = random_values<Element>(n, 3);
      Product const product(values, weights, 20, in, 2 * n);
      auto const run = [&](int first, int rows) {
        auto const x = view_of<Element>({values.begin() + first * in, values.begin() + (first + rows) * in}, rows, in);
        GuardedMatrix<Element> const y(rows, n);
        fuse_linear(space, blas, workspace, "test::linear", load(x), w,
                    kfuse::gate<kfuse::Activation::silu>({.layout = layout}) |
                        kfuse::weight(view_of<Element>(factor, n)) | store(y.view()));
        CHECK(y.guards_intact());
        return y.values();
      };
      for (int const rows : {16, 20}) {
        auto const y = run(0, rows);
        for (int row = 0; row < rows; ++row)
          for (int c = 0; c < n; ++c) {
            bool const halves = layout == GateLayout::halves;
            std::size_t const g = row * 2 * n + (halves ? c : 2 * c), u = g + (halves ? n : 1);
            double const silu = product.value[g] / (1 + std::exp(-product.value[g]));
            double const expected = silu * product.value[u] * factor[c];
            double const scale =
                (product.size[g] * std::abs(product.value[u]) + product.size[u] * std::abs(silu)) * std::abs(factor[c]);
            CHECK(std::abs(y[row * n + c] - expected) <= bound<Element> * (scale + 1e-6));
          }
      }
      auto const all = run(0, 16);
      CHECK(run(13, 3) == std::vector<double>(all.begin() + 13 * n, all.end()));
    }
}

TEST_CASE_TEMPLATE("queries and keys of a product are turned, and go to their places", Element, double, float, bf16) {
  Space const space = another_instance();
  Blas<Space> blas(space);
  Workspace<Space> workspace(1 << 22);
  using Angle = std::conditional_t<std::is_same_v<Element, double>, double, float>;
  struct Sizes {
    int heads, kv_heads, head_dim, rotary;
    RopePairs pairs;
  };
  for (Sizes const s : {Sizes{4, 2, 64, 64, RopePairs::half}, Sizes{3, 1, 40, 24, RopePairs::half},
                        Sizes{3, 1, 16, 16, RopePairs::interleaved}, Sizes{2, 1, 7, 4, RopePairs::half}})
    for (int const rows : {1, 6, 18}) {
      CAPTURE(s.head_dim);
      CAPTURE(rows);
      int const in = 56, capacity = 24, heads = s.heads + 2 * s.kv_heads, out = heads * s.head_dim, half = s.rotary / 2;
      auto const values = random_values<Element>(std::size_t(rows) * in, 1, -1, 1);
      auto const weights = random_values<Element>(std::size_t(out) * in, 2, -1, 1);
      auto const scale = random_values<Element>(in, 3, 0.5, 1);
      Problem const normed{.rows = rows, .in = in, .out = out, .normed = true, .x = values, .scale = scale};
      std::vector<double> operand, table, positions;
      for (int row = 0; row < rows; ++row)
        for (double const v : normed.operand(row)) operand.push_back(v);
      Product const product(operand, weights, rows, in, out);
      for (int p = 0; p < capacity; ++p)
        for (int i = 0; i < s.rotary; ++i) {
          double const angle = p * std::pow(100.0, -double(i % half) / half);
          table.push_back(decode(encode<Angle>(i < half ? std::cos(angle) : std::sin(angle))));
        }
      for (int row = 0; row < rows; ++row) positions.push_back((row * 5 + 3) % capacity);

      auto const angles = view_of<Angle>(table, capacity, s.rotary);
      auto const at = view_of<int>(positions, rows);
      auto const q = view_of_nans<Element>(rows, s.heads * s.head_dim);
      auto const k = view_of_nans<Element>(1, s.kv_heads, capacity, s.head_dim);
      auto const v = view_of_nans<Element>(1, s.kv_heads, capacity, s.head_dim);
      Ledger const ledger;
      fuse_linear(space, blas, workspace, "test::linear",
                  load(view_of<Element>(values, rows, in)) | rmsnorm(view_of<Element>(scale, in), {.epsilon = epsilon}),
                  view_of<Element>(weights, out, in),
                  kfuse::rope(angles, at, {s.head_dim, s.rotary, (s.heads + s.kv_heads) * s.head_dim, s.pairs, {}}) |
                      kfuse::store_qkv(q, k, v, at, rows));
      CHECK(ledger.launches() == (rows <= 16 && s.head_dim % 2 == 0 ? 1 : 3));
      auto const queries = download(q), keys = download(k), mixed = download(v);
      for (int row = 0; row < rows; ++row)
        for (int h = 0; h < heads; ++h)
          for (int c = 0; c < s.head_dim; ++c) {
            auto const first = std::size_t(row) * out + h * s.head_dim;
            double expected = product.value[first + c], size = product.size[first + c];
            if (h < s.heads + s.kv_heads && c < s.rotary) {
              bool const halves = s.pairs == RopePairs::half, is_first = halves ? c < half : c % 2 == 0;
              int const pair = halves ? c % half : c / 2, other = halves ? (c + half) % s.rotary : c ^ 1;
              double const* const angle = &table[std::size_t(positions[row]) * s.rotary + pair];
              double const turned = product.value[first + other] * angle[half];
              expected = expected * angle[0] + (is_first ? -turned : turned);
              size += product.size[first + other];
            }
            auto const place = [&](int head) {
              return (std::size_t(head) * capacity + positions[row]) * s.head_dim + c;
            };
            double const got = h < s.heads                ? queries[(row * s.heads + h) * s.head_dim + c]
                               : h < s.heads + s.kv_heads ? keys[place(h - s.heads)]
                                                          : mixed[place(h - s.heads - s.kv_heads)];
            CHECK(std::abs(got - expected) <= bound<Element> * size);
          }
      auto const untouched = [](double x) { return std::isnan(x); };
      CHECK(std::count_if(keys.begin(), keys.end(), untouched) == (capacity - rows) * s.kv_heads * s.head_dim);
    }
}

TEST_CASE_TEMPLATE("a NaN or an infinity in x spoils its row and no other, in w its column and no other", Element,
                   float, bf16) {
  for (double const bad : {double(NAN), double(INFINITY)})
    for (int const rows : {1, 5, 16, 20}) {
      CAPTURE(rows);
      auto p = random_problem<Element>(rows, 200, 33, false);
      std::fill(p.w.begin(), p.w.end(), 0.5);
      p.x[std::size_t(rows - 1) * 200 + 130] = bad;
      auto y = run<Element>(Space(), p);
      for (int i = 0; i < rows * 33; ++i) CHECK(std::isfinite(y[i]) == (i / 33 != rows - 1));
      p = random_problem<Element>(rows, 200, 33, false);
      std::fill(p.x.begin(), p.x.end(), 0.5);
      p.w[20 * 200 + 3] = bad;
      y = run<Element>(Space(), p);
      for (int i = 0; i < rows * 33; ++i) CHECK(std::isfinite(y[i]) == (i % 33 != 20));
    }
}

TEST_CASE_TEMPLATE("empty products launch nothing, and empty sums are the epilogue of zero", Element, float, bf16) {
  Space const space;
  {
    Ledger const ledger;
    Blas<Space> blas(space);
    Workspace<Space> workspace(1024);
    auto const none = kfuse::make_tensor<Element>(nullptr, 0, 8);
    auto const w = view_of<Element>(std::vector<double>(64, 1), 8, 8);
    fuse_linear(space, blas, workspace, "test::linear", load(none), w, store(none));
    CHECK(ledger.entries().empty());
  }
  for (int const rows : {3, 20}) {
    auto const p = random_problem<Element>(rows, 0, 5, false);
    CHECK(error_of_result(run<Element>(space, p), p) <= bound<Element>);
  }
}

TEST_CASE("element types may differ: what is multiplied has the weight's") {
  Space const space;
  Blas<Space> blas(space);
  Workspace<Space> workspace(1 << 20);
  for (int const rows : {4, 20}) {
    auto const values = random_values<bf16>(std::size_t(rows) * 96, 1), weights = random_values<bf16>(40 * 96, 2);
    auto const x = view_of<double>(values, rows, 96);
    auto const w = view_of<bf16>(weights, 40, 96);
    auto const y = view_of_nans<float>(rows, 40);
    fuse_linear(space, blas, workspace, "test::linear", load(x), w, store(y));
    auto const got = download(y);
    for (int row = 0; row < rows; ++row)
      for (int o = 0; o < 40; ++o) {
        double sum = 0, size = 0;
        for (int k = 0; k < 96; ++k) {
          sum += values[row * 96 + k] * weights[o * 96 + k];
          size += std::abs(values[row * 96 + k] * weights[o * 96 + k]);
        }
        CHECK(std::abs(got[row * 40 + o] - sum) <= size * (rows == 4 ? 1e-6 : tolerance<bf16>()));
      }
  }
}

TEST_CASE("what is drawn after a product is drawn for its place") {
  Space const space;
  Blas<Space> blas(space);
  Workspace<Space> workspace(1 << 20);
  auto const x = view_of<float>(std::vector<double>(20 * 64, 1), 20, 64);
  auto const w = view_of<float>(std::vector<double>(300 * 64, 1), 300, 64);
  auto const few = view_of_nans<float>(16, 300), many = view_of_nans<float>(20, 300);
  auto const drop = kfuse::dropout(0.5, {.seed = 3});
  fuse_linear(space, blas, workspace, "test::linear", load(Kokkos::subview(x, Kokkos::pair(0, 16), Kokkos::ALL)), w,
              drop | store(few));
  fuse_linear(space, blas, workspace, "test::linear", load(x), w, drop | store(many));
  auto const a = download(few), b = download(many);
  CHECK(std::equal(a.begin(), a.end(), b.begin()));
  CHECK(std::count(a.begin(), a.end(), 0.0) > 16 * 300 / 3);
}

TEST_CASE_TEMPLATE("the same call has the same bits again, replayed too", Element, double, float, bf16) {
  kfuse::Replay<Space> replay;
  Blas<Space> blas(replay.space());
  Workspace<Space> workspace(1 << 20);
  for (int const rows : {2, 37}) {
    auto const p = random_problem<Element>(rows, 200, 65, true);
    auto const x = view_of<Element>(p.x, rows, 200), w = view_of<Element>(p.w, 65, 200);
    auto const scale = view_of<Element>(p.scale, 200);
    auto const first = view_of_nans<Element>(rows, 65), second = view_of_nans<Element>(rows, 65);
    auto const project = [&](Space const& space, auto const& y) {
      fuse_linear(space, blas, workspace, "test::linear", load(x) | rmsnorm(scale), w, store(y),
                  {.weights = WeightsAre::constant});
    };
    project(replay.space(), first);
    project(replay.space(), second);
    CHECK(same_bits(first, second));
    replay.record([=](Space const& space) { project(space, second); });
    upload(second, std::vector<double>(std::size_t(rows) * 65, NAN));
    replay.run(replay.space());
    CHECK(same_bits(first, second));
  }
}

TEST_CASE("a weight of doubles is multiplied in double, whatever comes before and after") {
  Space const space;
  Blas<Space> blas(space);
  Workspace<Space> workspace(1 << 20);
  for (int const rows : {16, 17}) {
    CAPTURE(rows);
    auto const values = random_values<float>(std::size_t(rows) * 100, 1), factors = random_values<float>(100, 2);
    auto const weights = random_values<double>(3 * 100, 3);
    auto const y = view_of_nans<double>(rows, 3);
    fuse_linear(space, blas, workspace, "test::linear",
                load(view_of<float>(values, rows, 100)) | rmsnorm(view_of<float>(factors, 100)),
                view_of<double>(weights, 3, 100), store(y));
    auto const got = download(y);
    for (int row = 0; row < rows; ++row) {
      double squares = 0;
      for (int k = 0; k < 100; ++k) squares += values[row * 100 + k] * values[row * 100 + k];
      for (int o = 0; o < 3; ++o) {
        double sum = 0;
        for (int k = 0; k < 100; ++k)
          sum += values[row * 100 + k] / std::sqrt(squares / 100 + 1e-6) * factors[k] * weights[o * 100 + k];
        CHECK(std::abs(got[row * 3 + o] - sum) <= 1e-12);
      }
    }
    auto const large = view_of<double>(std::vector<double>(std::size_t(rows) * 8, 1e30), rows, 8);
    auto const w = view_of<double>(std::vector<double>(8, 1e30), 1, 8);
    auto const narrow = view_of_nans<float>(rows, 1);
    fuse_linear(space, blas, workspace, "test::linear", load(large), w, kfuse::scale(1e-35) | store(narrow));
    for (double const v : download(narrow)) CHECK(std::abs(v - 8e25) <= 1e19);
  }
}

// Says that its pairs are three columns apart, in groups of six, of which eight columns are not made: so it only loads.
struct AddThirdNext {
  using stage = kfuse::JoinStage;
  kfuse::ProductPairs product_pairs(int) const { return {3, 6}; }
  template <class X>
  KOKKOS_FUNCTION void join(X& x, X const& other) const {
    for (int i = 0; i < X::width; ++i) x[i] += other[i];
  }
  template <class Element, class F>
  void with_loaded(kfuse::Tensor<Element, 2> const& product, F const& f) const {
    int const n = product.extent(1) / 2;
    f(load(kfuse::columns(product, 0, n)) | add(kfuse::columns(product, n, n)));
  }
};
// Takes room among a kernel's arguments.
struct Heavy {
  using stage = kfuse::ElementStage;
  double unused[48];
  template <class X>
  KOKKOS_FUNCTION void apply(X&, kfuse::Place) const {}
};

TEST_CASE("what does not fit into one kernel goes by the library, and is right") {
  Space const space;
  Blas<Space> blas(space);
  Workspace<Space> workspace(1 << 20);
  auto const values = random_values<float>(2 * 14, 1), weights = random_values<float>(8 * 14, 2);
  auto const x = view_of<float>(values, 2, 14), w = view_of<float>(weights, 8, 14);
  Product const product(values, weights, 2, 14, 8);
  auto const check = [&](auto const& before, auto const& after, auto const& y, auto const& expected) {
    std::string labels;
    {
      Ledger const ledger;
      fuse_linear(space, blas, workspace, "test::linear", before, w, after);
      for (auto const& entry : ledger.entries()) labels += entry.label + " ";
    }
    CHECK(contains(labels, "kfuse::linear "));
    auto const got = download(y);
    int const columns = int(got.size()) / 2;
    for (int i = 0; i < 2 * columns; ++i) CHECK(std::abs(got[i] - expected(i / columns * 8, i % columns)) <= 1e-5);
  };
  auto const half = view_of_nans<float>(2, 4), whole = view_of_nans<float>(2, 8);
  check(load(x), AddThirdNext() | store(half), half,
        [&](int row, int c) { return product.value[row + c] + product.value[row + c + 4]; });
  check(load(x), user::MinusMirrored{8} | store(whole), whole,
        [&](int row, int c) { return product.value[row + c] - product.value[row + 7 - c]; });
  check(load(x), Heavy() | store(whole), whole, [&](int row, int c) { return product.value[row + c]; });
  // Heads of seven columns, which packs of four would straddle.
  auto const heads = kfuse::make_tensor<float const>(x.data(), 1, 2, 2, 7);  // [batch, heads, tokens, head_dim]
  check(kfuse::load_heads(heads), store(whole), whole, [&](int row, int c) {
    double sum = 0;
    for (int k = 0; k < 14; ++k) sum += values[k / 7 * 14 + row / 8 * 7 + k % 7] * weights[c * 14 + k];
    return sum;
  });
}

TEST_CASE("the path follows from the number of rows, the layout and the prologue") {
  using kfuse::impl::fuse_linear_path;
  constexpr auto few = FuseLinearPath::few_rows, library = FuseLinearPath::library;
  CHECK(fuse_linear_path(1, WeightLayout::out_in, true) == few);
  CHECK(fuse_linear_path(16, WeightLayout::out_in, true) == few);
  CHECK(fuse_linear_path(17, WeightLayout::out_in, true) == library);
  CHECK(fuse_linear_path(1, WeightLayout::in_out, true) == library);
  CHECK(fuse_linear_path(1, WeightLayout::out_in, false) == library);
}

TEST_CASE("what is launched and moved is stated, and a ledger can hold it back") {
  Space const space;
  Blas<Space> blas(space);
  Workspace<Space> workspace(1 << 20);
  auto const scale = view_of_nans<float>(7), b = view_of_nans<float>(3);
  auto const w = view_of_nans<float>(3, 7);
  auto const labels = [&](auto const& before, auto const& after) {
    Ledger const ledger(Ledger::Execution::none);
    fuse_linear(space, blas, workspace, "test::linear", before, w, after);
    std::string all;
    for (auto const& entry : ledger.entries()) all += entry.label + (entry.launches == 1 ? " " : " more ");
    return all;
  };
  for (int const rows : {16, 17}) {
    auto const x = view_of_nans<float>(rows, 7), y = view_of_nans<float>(rows, 3);
    bool const few = rows == 16;
    CHECK(labels(load(x), store(y)) == (few ? "test::linear " : "kfuse::linear "));
    CHECK(labels(load(x), bias(b) | store(y)) == (few ? "test::linear " : "kfuse::linear test::linear::epilogue "));
    CHECK(labels(load(x) | rmsnorm(scale), store(y)) ==
          (few ? "test::linear " : "test::linear::prologue kfuse::linear "));
    for (double const v : download(y)) CHECK(std::isnan(v));
  }
  auto const x = view_of_nans<float>(5, 7), y = view_of_nans<float>(5, 3);
  auto const cost = kfuse::fuse_linear_traffic(load(x) | kfuse::scale(2), as_tensor(w), bias(b) | store(y));
  CHECK(cost == kfuse::Traffic{(5 * 7 + 3 * 7 + 3) * 4, 5 * 3 * 4, 2 * 5 * 3 * 7 + 5 * 7 + 5 * 3});
  Ledger const ledger(Ledger::Execution::none);
  fuse_linear(space, blas, workspace, "test::linear", load(x) | kfuse::scale(2), w, bias(b) | store(y));
  CHECK(ledger.traffic() == cost);
}

TEST_CASE("what stages raise or count lies in nothing that is read or written") {
  Space const space;
  Blas<Space> blas(space);
  Workspace<Space> workspace(1 << 20);
  auto const x = view_of<float>(random_values(64, 2), 8, 8), w = view_of<float>(random_values(64, 3), 8, 8);
  auto const y = view_of_nans<float>(8, 8);
  auto const table = view_of<float>(std::vector<double>(8, 1), 1, 8);
  auto const at = view_of<int>(std::vector<double>(8, 0), 8);
  auto const refused = [&](float* flag) {
    Kokkos::View<int, Space, Kokkos::MemoryUnmanaged> const status(reinterpret_cast<int*>(flag));
    return error_of([&] {
      fuse_linear(space, blas, workspace, "test::linear", load(x), w,
                  kfuse::rope(table, at, {.head_dim = 8, .status = kfuse::DataStatus(status)}) | store(y));
    });
  };
  CHECK(contains(refused(w.data()), "overlaps w"));
  CHECK(contains(refused(y.data()), "status: lies in store"));
  CHECK(contains(refused(x.data()), "status: lies in load"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("wrong arguments are refused, and y is left alone") {
  Space const space;
  Blas<Space> blas(space);
  Workspace<Space> workspace(1 << 20), small(64);
  auto const values = random_values(20 * 8, 1);
  auto const many = view_of<float>(values, 20, 8), y = view_of_nans<float>(8, 8), many_y = view_of_nans<float>(20, 8);
  auto const x = view_of<float>(random_values(64, 2), 8, 8), w = view_of<float>(random_values(64, 3), 8, 8);
  auto const narrow = view_of_nans<float>(8, 5);
  auto const short_scale = view_of_nans<float>(5);
  auto const refused = [&](auto const& before, auto const& weight, auto const& after,
                           FuseLinearOptions const& options = {}) {
    return error_of([&] { fuse_linear(space, blas, small, "test::linear", before, weight, after, options); });
  };
  CHECK(refused(load(narrow), w, store(y)).starts_with("test::linear: w: its shape [8, 8], taken as [out, in]"));
  CHECK(contains(refused(load(x), narrow, store(y)), "is the other WeightLayout meant?"));
  CHECK(refused(load(x), w, store(narrow)).starts_with("test::linear: store: shape [8, 5] does not match"));
  CHECK(contains(refused(load(x) | rmsnorm(short_scale), w, store(y)), "test::linear: weight: has 5 entries"));
  CHECK(contains(refused(load(x), w, bias(short_scale) | store(y)), "test::linear: bias: has 5 entries"));
  CHECK(contains(refused(load(x), w, store(x)), "store: overlaps load"));
  CHECK(contains(refused(load(x), w, store(w)), "store: overlaps w"));
  CHECK(contains(refused(load(x), w, store(y), {.layout = WeightLayout(2)}), "options.layout"));
  CHECK(contains(refused(load(x), w, store(y), {.weights = WeightsAre(2)}), "options.weights"));
  CHECK(refused(load(many), w, bias(as_tensor(short_scale)) | store(many_y)).starts_with("test::linear: bias: has 5"));
  CHECK(contains(refused(load(x), w, store(y) | store(y)), "store: overlaps store"));
  CHECK(contains(refused(load(x), w, kfuse::gate<kfuse::Activation::relu>({GateLayout(2)}) | store(y)),
                 "options.layout"));
  std::string const too_small = refused(load(many) | kfuse::scale(2), w, store(many_y));
  CHECK(contains(too_small, "workspace"));
  CHECK(contains(too_small, "make it at least"));
  for (double const v : download(y)) CHECK(std::isnan(v));
  for (double const v : download(many_y)) CHECK(std::isnan(v));
  CHECK(contains(refused(load(x), view_of_nans<float>(5, 8), kfuse::gate<kfuse::Activation::silu>() | store(y)),
                 "w: its 5 outputs are not a gate and an up for each value"));
  auto const many_columns = kfuse::make_tensor<float>(nullptr, 0, std::numeric_limits<int>::max());
  auto const wide = kfuse::make_tensor<float const>(w.data(), 1, std::numeric_limits<int>::max());
  CHECK(contains(refused(load(many_columns), wide, store(kfuse::make_tensor<float>(nullptr, 0, 1))), "2^31 - 2^16"));
  CHECK(refused(load(x), w, add(y) | store(y)).empty());  // in place of what only the epilogue reads
}

}  // namespace
