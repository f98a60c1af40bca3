// SPDX-License-Identifier: Apache-2.0
#include <kfuse/core/replay.hpp>
#include <kfuse/fused/linear.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::Activation;
using kfuse::as_tensor;
using kfuse::bf16;
using kfuse::Blas;
using kfuse::ElementType;
using kfuse::fp16;
using kfuse::Ledger;
using kfuse::linear;
using kfuse::LinearOptions;
using kfuse::LinearPath;
using kfuse::WeightLayout;
using kfuse::impl::Residual;
using namespace kfuse::test;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double activated(Activation activation, double v) {
  switch (activation) {
    case Activation::none:
      return v;
    case Activation::relu:
      return v < 0 ? 0 : v;
    case Activation::gelu:
      return v / 2 * (1 + std::erf(v / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return v / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
    case Activation::gelu_quick:
      return v / (1 + std::exp(-1.702 * v));
    case Activation::silu:
      return v / (1 + std::exp(-v));
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-v));
    case Activation::tanh:
      return std::tanh(v);
  }
  return nan;
}

// One projection: sizes, values (w as [out, in]), and what is asked for.
struct Problem {
  int rows, in, out;
  std::vector<double> x, w, bias, residual;  // the last two may be empty: none
  Activation activation = Activation::none;

  // The definition, and beside it the sum of the magnitudes that rounding errors are relative to.
  std::pair<std::vector<double>, std::vector<double>> reference() const {
    std::vector<double> y, magnitude;
    for (int r = 0; r < rows; ++r)
      for (int o = 0; o < out; ++o) {
        double sum = 0, size = 0;
        for (int k = 0; k < in; ++k) {
          double const term = x[std::size_t(r) * in + k] * w[std::size_t(o) * in + k];
          sum += term;
          size += std::abs(term);
        }
        double const b = bias.empty() ? 0 : bias[o];
        double const added = residual.empty() ? 0 : residual[std::size_t(r) * out + o];
        y.push_back(activated(activation, sum + b) + added);
        magnitude.push_back(size + std::abs(b) + std::abs(added));
      }
    return {y, magnitude};
  }
  std::vector<double> weight_as(WeightLayout layout) const {
    if (layout == WeightLayout::out_in) return w;
    std::vector<double> turned;
    for (int k = 0; k < in; ++k)
      for (int o = 0; o < out; ++o) turned.push_back(w[std::size_t(o) * in + k]);
    return turned;
  }
};

template <class Element>
Problem random_problem(int rows, int in, int out, bool bias, bool residual, Activation activation) {
  auto const values = [](std::size_t n, int seed) { return random_values<Element>(n, seed, -1, 1); };
  Problem p{rows, in, out, values(std::size_t(rows) * in, 1), values(std::size_t(out) * in, 2), {}, {}, activation};
  if (bias) p.bias = values(out, 3);
  if (residual) p.residual = values(std::size_t(rows) * out, 4);
  return p;
}

// The largest error relative to the magnitudes; NaN wins.
double error_within(std::vector<double> const& actual, Problem const& p) {
  auto const [expected, magnitude] = p.reference();
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double const e = std::abs(actual[i] - expected[i]) / (magnitude[i] + 1e-30);
    if (!(e <= largest)) largest = e;
  }
  return largest;
}
// Two roundings, to y before the rest of the epilogue and to y after it, and the sums of a few hundred terms.
template <class Element>
constexpr double bound = 2.2 * tolerance<Element>();

// Runs p between guards, all its matrices placed alike.
template <class Element>
std::vector<double> run(Space const& space, Blas<Space>& blas, Problem const& p, Place2D place = {},
                        WeightLayout layout = WeightLayout::out_in, Residual residual = Residual::elsewhere) {
  bool const out_in = layout == WeightLayout::out_in;
  GuardedMatrix<Element> const x(p.rows, p.in, p.x, place);
  GuardedMatrix<Element> const w(out_in ? p.out : p.in, out_in ? p.in : p.out, p.weight_as(layout), place);
  GuardedMatrix<Element> const bias(1, p.out, p.bias, place), added(p.rows, p.out, p.residual, place);
  GuardedMatrix<Element> const y(p.rows, p.out, place);
  LinearOptions<Element> options{.activation = p.activation, .weight = layout};
  if (!p.bias.empty()) options.bias = as_tensor(Kokkos::subview(bias.view(), 0, Kokkos::ALL));
  if (!p.residual.empty()) options.residual = as_tensor((residual == Residual::in_place ? y : added).view());
  if (!p.residual.empty() && residual == Residual::in_place) y.set(p.residual);
  linear(space, blas, x.const_view(), w.const_view(), y.view(), options);
  CHECK(y.guards_intact());
  CHECK(deviation(x.values(), p.x) == 0);
  CHECK(w.values() == p.weight_as(layout));
  return y.values();
}

constexpr Activation activations[] = {Activation::none,      Activation::relu,       Activation::gelu,
                                      Activation::gelu_tanh, Activation::gelu_quick, Activation::silu,
                                      Activation::sigmoid,   Activation::tanh};

TEST_CASE_TEMPLATE("every combination of options agrees with the definition", Element, double, float, bf16, fp16) {
  Space const space = another_instance();
  Blas<Space> blas(space);
  for (Activation const activation : activations)
    for (bool const bias : {false, true})
      for (Residual const residual : {Residual::none, Residual::elsewhere, Residual::in_place})
        for (WeightLayout const layout : {WeightLayout::out_in, WeightLayout::in_out})
          for (bool const odd : {false, true}) {
            CAPTURE(int(activation));
            CAPTURE(bias);
            CAPTURE(int(residual));
            CAPTURE(int(layout));
            CAPTURE(odd);
            auto const p = odd ? random_problem<Element>(7, 19, 33, bias, residual != Residual::none, activation)
                               : random_problem<Element>(8, 32, 64, bias, residual != Residual::none, activation);
            auto const y = run<Element>(space, blas, p, {}, layout, residual);
            CHECK(error_within(y, p) <= bound<Element>);
          }
}

TEST_CASE_TEMPLATE("any size, alignment and row stride agrees with the definition", Element, double, float, bf16,
                   fp16) {
  Space const space = another_instance();
  Blas<Space> blas(space);
  auto const draws = random_values(200, 7, 0, 1);
  for (int i = 0; i < 40; ++i) {
    double const* const draw = &draws[i * 5];
    int const rows = 1 + int(draw[0] * 130), in = 1 + int(draw[1] * 130);
    int const out = i % 8 == 7 ? 1 : 1 + int(draw[2] * 130);  // some are columns with gaps between their entries
    Place2D const place{i % 3, i % 4 * 3};
    auto const layout = i % 2 ? WeightLayout::in_out : WeightLayout::out_in;
    CAPTURE(rows);
    CAPTURE(in);
    CAPTURE(out);
    CAPTURE(i);
    auto const p =
        random_problem<Element>(rows, in, out, draw[3] < 0.5, draw[4] < 0.5, activations[i % std::size(activations)]);
    CHECK(error_within(run<Element>(space, blas, p, place, layout), p) <= bound<Element>);
  }
}

TEST_CASE_TEMPLATE("tails of tiles are whole and bias belongs to columns, exactly", Element, double, float) {
  Space const space;
  Blas<Space> blas(space);
  for (int const m : {1, 2, 5, 33, 130})
    for (int const n : {1, 3, 31, 32, 33, 96, 97, 129})
      for (int const k : {1, 7, 133, 192}) {
        Problem p{m, k, n, {}, {}, {}, {}};
        std::vector<double> expected;
        for (int r = 0; r < m; ++r) p.x.insert(p.x.end(), k, r + 1);
        for (int c = 0; c < n; ++c) p.w.insert(p.w.end(), k, c + 1);
        for (int c = 0; c < n; ++c) p.bias.push_back(3 * c - 5);
        for (int r = 0; r < m; ++r)
          for (int c = 0; c < n; ++c) expected.push_back(double(r + 1) * (c + 1) * k + p.bias[c]);
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        CHECK(run<Element>(space, blas, p) == expected);
      }
  Problem p{8, 8, 8, std::vector<double>(64, 0), random_values<Element>(64, 1), {1, 2, 3, 4, 5, 6, 7, 8}, {}};
  std::vector<double> expected;
  for (int r = 0; r < 8; ++r) expected.insert(expected.end(), p.bias.begin(), p.bias.end());
  CHECK(run<Element>(space, blas, p) == expected);
}

TEST_CASE_TEMPLATE("a row that picks out one input gives that column of the weight, exactly", Element, double, float,
                   bf16, fp16) {
  Space const space;
  Blas<Space> blas(space);
  for (int const n : {1, 8, 33, 129})
    for (int const k : {1, 8, 133}) {
      int const m = k + 2;
      Problem p{m,  k, n, std::vector<double>(std::size_t(m) * k, 0), random_values<Element>(std::size_t(n) * k, 5),
                {}, {}};
      for (int r = 0; r < m; ++r) p.x[std::size_t(r) * k + r % k] = 1;
      CAPTURE(n);
      CAPTURE(k);
      for (auto const layout : {WeightLayout::out_in, WeightLayout::in_out})
        CHECK(run<Element>(space, blas, p, {1, 0}, layout) == p.reference().first);
    }
}

TEST_CASE_TEMPLATE("what y held before does not matter", Element, double, float, bf16, fp16) {
  Space const space;
  Blas<Space> blas(space);
  auto const check_ones = [&](int m, int n, int k) {
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    Problem const p{m,  k, n, std::vector<double>(std::size_t(m) * k, 1), std::vector<double>(std::size_t(n) * k, 1),
                    {}, {}};
    CHECK(run<Element>(space, blas, p) == std::vector<double>(std::size_t(m) * n, k));  // y was filled with NaNs
  };
  for (int const m : {1, 3, 17, 64, 65})
    for (int const n : {1, 3, 17, 64, 65})
      for (int const k : {1, 3, 17, 64, 65}) check_ones(m, n, k);
  check_ones(8, 8, 8192);  // few outputs of long sums: libraries split these
}

TEST_CASE_TEMPLATE("a NaN in x makes its row NaN and no other, whatever the activation", Element, double, float, bf16,
                   fp16) {
  Space const space;
  Blas<Space> blas(space);
  for (Activation const activation : activations) {
    CAPTURE(int(activation));
    auto p = random_problem<Element>(16, 16, 16, true, false, activation);
    p.x[5 * 16 + 3] = nan;
    auto const y = run<Element>(space, blas, p);
    for (int i = 0; i < 16 * 16; ++i) CHECK(std::isnan(y[i]) == (i / 16 == 5));
  }
}

TEST_CASE_TEMPLATE("empty products launch nothing, and empty sums are zero", Element, float, bf16) {
  Space const space = another_instance();
  Blas<Space> blas(space);
  Kokkos::View<Element**, Kokkos::LayoutRight, Space> const nothing("x", 0, 8), no_output("y", 0, 8),
      no_columns("y", 3, 0);
  auto const w = view_of<Element>(std::vector<double>(64, 1), 8, 8);
  auto const x = view_of<Element>(std::vector<double>(24, 1), 3, 8);
  {
    Ledger const ledger;
    linear(space, blas, nothing, w, no_output);
    linear(space, blas, kfuse::make_tensor<Element>(nullptr, 0, 8), w, kfuse::make_tensor<Element>(nullptr, 0, 8));
    linear(space, blas, x, Kokkos::View<Element**, Kokkos::LayoutRight, Space>("w", 0, 8), no_columns);
    CHECK(ledger.entries().empty());
  }
  auto const p = random_problem<Element>(3, 0, 5, true, true, Activation::silu);
  CHECK(error_within(run<Element>(space, blas, p), p) <= bound<Element>);
  auto const y = view_of_nans<Element>(3, 8);
  linear(space, blas, x, w, y);
  CHECK(download(y) == std::vector<double>(24, 8));
}

TEST_CASE_TEMPLATE("the same call has the same bits again, replayed too", Element, double, float, bf16, fp16) {
  kfuse::Replay<Space> replay;
  Blas<Space> blas(replay.space());
  auto const p = random_problem<Element>(37, 200, 65, true, true, Activation::none);
  auto const x = view_of<Element>(p.x, 37, 200), w = view_of<Element>(p.w, 65, 200);
  auto const residual = view_of<Element>(p.residual, 37, 65);
  auto const bias = view_of<Element>(p.bias, 65);
  auto const first = view_of_nans<Element>(37, 65), second = view_of_nans<Element>(37, 65);
  auto const project = [&](Space const& space, auto const& y) {
    linear(space, blas, x, w, y, {.bias = as_tensor(bias), .residual = as_tensor(residual)});
  };
  project(replay.space(), first);
  project(replay.space(), second);
  CHECK(same_bits(first, second));
  replay.record([=](Space const& space) { project(space, second); });
  upload(second, std::vector<double>(37 * 65, nan));
  replay.run(replay.space());
  CHECK(same_bits(first, second));
}

TEST_CASE_TEMPLATE("a tuned product is right from the first call on", Element, double, bf16) {
  Space const space = another_instance();
  Blas<Space> first(space, {.tune = true});
  Blas<Space> blas(std::move(first));  // a Blas can move
  auto const p = random_problem<Element>(16, 256, 128, true, true, Activation::none);
  for (int call = 0; call < 2; ++call)
    CHECK(error_within(run<Element>(space, blas, p, {}, WeightLayout::out_in, Residual::in_place), p) <=
          bound<Element>);
}

// Runs p by the kernel that is used where no library takes a product.
template <class Element>
std::vector<double> run_own_kernel(Space const& space, Problem const& p, WeightLayout layout) {
  bool const out_in = layout == WeightLayout::out_in;
  Place2D const place{1, 2};
  GuardedMatrix<Element> const x(p.rows, p.in, p.x, place), y(p.rows, p.out, place);
  GuardedMatrix<Element> const w(out_in ? p.out : p.in, out_in ? p.in : p.out, p.weight_as(layout), place);
  auto const bias = view_of<Element>(p.bias, p.out);
  auto const residual = view_of<Element>(p.residual, p.rows, p.out);
  using kfuse::impl::as_batch;
  kfuse::impl::launch_product(space, "kfuse::linear", as_batch(as_tensor(x.const_view())),
                              as_batch(as_tensor(w.const_view())),
                              out_in ? kfuse::Transpose::yes : kfuse::Transpose::no, as_batch(as_tensor(y.view())),
                              kfuse::impl::LinearEpilogue<Element>{as_tensor(bias), as_tensor(residual), p.activation});
  CHECK(y.guards_intact());
  return y.values();
}

TEST_CASE_TEMPLATE("our own kernel agrees with the definition, and a row's bits depend on no other row", Element,
                   double, float, bf16, fp16) {
  Space const space = another_instance();
  for (int const rows : {1, 4, 63, 130})
    for (int const in : {1, 16, 75})
      for (int const out : {1, 9, 64, 131})
        for (auto const layout : {WeightLayout::out_in, WeightLayout::in_out}) {
          CAPTURE(rows);
          CAPTURE(in);
          CAPTURE(out);
          CAPTURE(int(layout));
          auto p = random_problem<Element>(rows, in, out, true, true, Activation::gelu);
          auto const all = run_own_kernel<Element>(space, p, layout);
          CHECK(error_within(all, p) <= tolerance<Element>());
          p.x.erase(p.x.begin(), p.x.end() - in);
          p.residual.erase(p.residual.begin(), p.residual.end() - out);
          p.rows = 1;
          CHECK(run_own_kernel<Element>(space, p, layout) == std::vector<double>(all.end() - out, all.end()));
        }
}

TEST_CASE("the path follows from types and options") {
  auto const path = [](ElementType element, bool bias, Activation activation, Residual residual, int depth = 64) {
    return kfuse::impl::linear_path<Space>(element, depth, bias, activation, residual);
  };
  constexpr bool host = kfuse::impl::Backend<Space>::is_host;
  constexpr auto two = LinearPath::library_then_epilogue, own = LinearPath::own_kernel;
  constexpr auto one = LinearPath::library, one_on_gpus = host ? two : one;
  constexpr auto none = Residual::none, in_place = Residual::in_place, elsewhere = Residual::elsewhere;
  for (auto const element : {ElementType::fp64, ElementType::fp32, ElementType::bf16, ElementType::fp16}) {
    CAPTURE(name(element));
    auto const unless_fp64 = element == ElementType::fp64 ? two : one_on_gpus;
    CHECK(path(element, false, Activation::none, none) == one);
    CHECK(path(element, false, Activation::none, in_place) == one);
    CHECK(path(element, false, Activation::none, elsewhere) == one_on_gpus);
    CHECK(path(element, true, Activation::none, none) == unless_fp64);
    CHECK(path(element, true, Activation::none, in_place) == unless_fp64);
    CHECK(path(element, true, Activation::none, elsewhere) == unless_fp64);
    CHECK(path(element, true, Activation::relu, none) == unless_fp64);
    CHECK(path(element, true, Activation::gelu_tanh, none) == unless_fp64);
    for (auto const activation :
         {Activation::gelu, Activation::gelu_quick, Activation::silu, Activation::sigmoid, Activation::tanh}) {
      CHECK(path(element, false, activation, none) == two);
      CHECK(path(element, true, activation, elsewhere) == two);
    }
    CHECK(path(element, true, Activation::relu, elsewhere) == two);
    CHECK(path(element, true, Activation::relu, in_place) == own);
    CHECK(path(element, true, Activation::none, none, 0) == own);
  }
}

TEST_CASE("what is launched and moved is stated, and a ledger can hold it back") {
  Blas<Space> blas{Space()};
  auto const x = view_of_nans<float>(5, 7), w = view_of_nans<float>(3, 7), y = view_of_nans<float>(5, 3);
  auto const bias = view_of_nans<float>(3);
  LinearOptions<float> const options{.bias = as_tensor(bias), .activation = Activation::gelu};
  auto const cost = kfuse::linear_traffic<float>(as_tensor(x), as_tensor(w), as_tensor(y), options);
  CHECK(cost == kfuse::Traffic{(5 * 7 + 3 * 7 + 3) * 4, 5 * 3 * 4, 2 * 5 * 3 * 7});
  LinearOptions<float> const with_residual{.residual = as_tensor(y)};
  CHECK(kfuse::linear_traffic<float>(as_tensor(x), as_tensor(w), as_tensor(y), with_residual).bytes_read ==
        (5 * 7 + 3 * 7 + 5 * 3) * 4);

  upload(x, random_values(35, 1));
  upload(w, random_values(21, 2));
  upload(bias, random_values(3, 3));
  Ledger const ledger(Ledger::Execution::none);
  linear(Space(), blas, x, w, y, options);
  for (double const v : download(y)) CHECK(std::isnan(v));
  CHECK(ledger.entries().front().label == "kfuse::linear");
  CHECK(ledger.traffic().flops >= cost.flops);
  if (ledger.launches() == 1) {
    CHECK(ledger.traffic() == cost);
  } else {  // y is also read and written by the epilogue
    CHECK(ledger.launches() == 2);
    CHECK(ledger.entries().back().label == "kfuse::linear::epilogue");
    CHECK(ledger.traffic().bytes() == cost.bytes() + 2 * 5 * 3 * 4);
  }
}

TEST_CASE("wrong arguments are refused, and y is left alone") {
  Blas<Space> blas{Space()};
  auto const values = random_values(64, 1);
  auto const x = view_of<float>(values, 8, 8), w = view_of<float>(values, 8, 8), y = view_of<float>(values, 8, 8);
  auto const narrow = view_of_nans<float>(8, 5);
  auto const bias = view_of_nans<float>(8), short_bias = view_of_nans<float>(5);
  auto const refused = [&](auto const& in, auto const& weight, auto const& out,
                           LinearOptions<float> const& options = {}) {
    return error_of([&] { linear(Space(), blas, in, weight, out, options); });
  };

  CHECK(contains(refused(narrow, w, y),
                 "linear: w: its shape [8, 8], taken as [out, in], does not fit x, which is [8, 5]"));
  CHECK(contains(refused(x, narrow, narrow), "other WeightLayout"));
  CHECK(refused(x, narrow, narrow, {.weight = WeightLayout::in_out}).find("kfuse::linear: y") == 0);  // it overlaps w
  CHECK(contains(refused(x, w, narrow), "linear: y: its shape is [8, 5], but x [8, 8] and w [8, 8] make [8, 8]"));
  CHECK(contains(refused(x, w, y, {.bias = as_tensor(short_bias)}), "linear: bias: it has 5 entries"));
  CHECK(contains(refused(x, w, y, {.residual = as_tensor(narrow)}), "linear: residual: its shape is [8, 5]"));
  CHECK(contains(refused(x, w, x), "linear: y: it overlaps x, w or bias"));
  CHECK(contains(refused(x, y, y), "linear: y: it overlaps x, w or bias"));

  auto const both = view_of<float>(random_values(16 * 9, 2), 9, 16);
  auto const left = kfuse::columns(as_tensor(both), 0, 8), right = kfuse::columns(as_tensor(both), 8, 8);
  auto const off_by_one = kfuse::columns(as_tensor(both), 1, 8);
  CHECK(contains(refused(left, w, kfuse::rows(right, 0, 8)), "linear: y: its shape"));
  auto const rows = [](auto const& t) { return kfuse::rows(t, 0, 8); };
  CHECK(refused(rows(left), w, rows(right)).empty());  // side by side
  CHECK(contains(refused(rows(left), w, rows(off_by_one)), "linear: y: it overlaps"));
  CHECK(contains(refused(x, w, rows(left), {.residual = rows(off_by_one)}), "linear: residual: it overlaps y"));
  kfuse::Tensor<float const, 2> const repeated{x.data(), {8, 8}, {0, 1}};
  CHECK(contains(refused(repeated, w, y), "linear: x: its rows overlap"));
  CHECK(download(y) == rounded<float>(values));
}

}  // namespace
