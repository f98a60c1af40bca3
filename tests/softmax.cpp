// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/softmax.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::CausalVariant;
using kfuse::fp16;
using kfuse::softmax;
using kfuse::SoftmaxOptions;
using namespace kfuse::test;

constexpr double infinity = std::numeric_limits<double>::infinity();

// The definition, over the columns that are visible and a sink for each row; zeros where there is nothing to sum, and
// NaNs throughout where the sum is one.
std::vector<double> reference(std::vector<double> const& x, int columns, double scale = 1,
                              std::vector<double> const& visible = {}, std::vector<double> const& sinks = {}) {
  std::vector<double> y(x.size(), 0);
  for (std::size_t first = 0; first < x.size(); first += columns) {
    auto const counts = [&](int c) { return visible.empty() || visible[first + c] != 0; };
    double const sink = sinks.empty() ? -infinity : sinks[first / columns];
    double high = sink;
    long double sum = 0;  // for equal values beside a sink, whose errors would be equal, too
    bool nothing = true;  // a NaN is something
    for (int c = 0; c < columns; ++c)
      if (counts(c)) {
        high = std::max(high, scale * x[first + c]);
        nothing = nothing && scale * x[first + c] == -infinity;
      }
    if (nothing) continue;
    if (sink > -infinity) sum = std::exp(sink - high);
    for (int c = 0; c < columns; ++c)
      if (counts(c)) sum += std::exp(scale * x[first + c] - high);
    for (int c = 0; c < columns; ++c)
      if (counts(c) || std::isnan(sum)) y[first + c] = double(std::exp(scale * x[first + c] - high) / sum);
  }
  return y;
}

template <class Element>
std::vector<double> softmaxed(std::vector<double> const& x, int columns) {
  int const rows = int(x.size() / columns);
  auto const y = view_of_nans<Element>(rows, columns);
  softmax(Space(), view_of<Element>(x, rows, columns), y);
  return download(y);
}

// Relative to 1e-6 at least: what is smaller than that of a row's sum is only held to be small.
TEST_CASE_TEMPLATE("softmax agrees with its definition in double", Element, double, float, bf16, fp16) {
  Space const space = another_instance();
  for (int const columns : {1, 5, 17, 64, 511, 781, 1023, 4096, 10001, 32768})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 3}}) {
      CAPTURE(columns);
      CAPTURE(place.shift);
      int const rows = 3;
      auto const x = random_values<Element>(std::size_t(rows) * columns, columns, -4, 4);
      GuardedMatrix<Element> const in(rows, columns, x, place), out(rows, columns, place);
      softmax(space, in.const_view(), out.view(), {.scale = 1.5});
      double const least = std::is_same_v<Element, fp16> ? 1e-2 : 1e-6;  // below 6e-5, fp16 has fewer digits
      CHECK(deviation(out.values(), reference(x, columns, 1.5), least) <= tolerance<Element>());
      CHECK(out.guards_intact());
      CHECK(in.values() == x);
    }
}

TEST_CASE("softmax over what is visible agrees with its definition in double") {
  for (int const columns : {3, 64, 129, 4096, 33000}) {
    int const rows = 4;
    auto const x = random_values<float>(std::size_t(rows) * columns, columns);
    auto visible = random_values(std::size_t(rows) * columns, 7, 0, 2);  // row 1 shows nothing, row 2 its last column
    for (double& v : visible) v = std::floor(v);
    std::fill_n(visible.begin() + columns, 2 * columns, 0);
    visible[3 * columns - 1] = 1;
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 1}}) {
      GuardedMatrix<std::uint8_t> const shown(rows, columns, visible, place);
      GuardedMatrix<float> const in(rows, columns, x, place), out(rows, columns, place);
      softmax(Space(), in.const_view(), shown.const_view(), out.view(), {.scale = 0.5});
      auto const y = out.values();
      CHECK(deviation(y, reference(x, columns, 0.5, visible), 1e-6) <= 1e-5);
      for (std::size_t i = 0; i < y.size(); ++i)
        if (visible[i] == 0) REQUIRE(y[i] == 0);
      CHECK(y[3 * columns - 1] == 1);
      CHECK(out.guards_intact());
    }
  }
}

// Which keys a query sees, written from the definition: [rows, keys].
std::vector<double> seen_by(CausalVariant variant, int rows, int queries, int keys) {
  std::vector<double> visible;
  for (int r = 0; r < rows; ++r)
    for (int k = 0; k < keys; ++k) {
      int const q = r % queries;
      visible.push_back(variant == CausalVariant::none || (variant == CausalVariant::upper_left && k <= q) ||
                        (variant == CausalVariant::lower_right && keys - 1 - k >= queries - 1 - q));
    }
  return visible;
}

// What errors of a row are relative to, where numbers are rounded before the exponential of their difference: scaled
// values, whatever the scale, and what is far below a sink.
std::vector<double> scales(std::vector<double> const& x, std::vector<double> const& y, int columns, double scale) {
  std::vector<double> result;
  for (std::size_t first = 0; first < x.size(); first += columns) {
    double largest = 4, share = 0;  // a sink is up to 4
    for (std::size_t i = first; i < first + columns; ++i) {
      if (std::isfinite(x[i])) largest = std::max(largest, std::abs(scale * x[i]));
      if (std::isfinite(y[i])) share = std::max(share, y[i]);
    }
    result.push_back(share * largest + 1e-30);  // shares below that are hardly numbers in float
  }
  return result;
}

// A number that divides n.
int divisor(Random& random, int n) {
  int d = random.below(3) == 0 ? n : 1 + random.below(n);
  while (n % d != 0) --d;
  return d;
}

TEST_CASE("softmax is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("softmax", {}, [&]<class Element>(RandomCase& c) {
    auto random = c.random();
    // The first keep every digit and exceed no number.
    constexpr double factors[] = {1, 1, -1, 0.5, -0.25, 0, 1.5, -0.7};
    int const drawn = random.below(c.kind == ValueKind::huge ? 6 : 8);
    bool const has_mask = random.below(3) == 0, has_sinks = random.below(3) == 0;
    auto const causal = CausalVariant(std::max(0, random.below(5) - 2));
    bool const by_row = has_sinks || causal != CausalVariant::none;  // rows are [.., heads, queries]
    int const queries = by_row ? divisor(random, c.rows) : 0, heads = has_sinks ? divisor(random, c.rows / queries) : 0;
    SoftmaxOptions<Element> options{.scale = factors[drawn], .causal = causal, .queries = queries};

    auto const x = c.values<Element>(0);
    auto sinks = random_values<Element>(heads, c.seed, -4, 4);
    if (heads > 1) sinks[0] = -infinity;
    auto const sink_view = view_of<Element>(sinks, heads);
    if (has_sinks) options.sinks = kfuse::as_tensor(Kokkos::View<Element const*, Space>(sink_view));
    std::vector<double> row_sinks, shown(has_mask ? x.size() : 0), visible;
    for (int r = 0; r < c.rows && has_sinks; ++r) row_sinks.push_back(sinks[r / queries % heads]);
    for (double& v : shown) v = random.below(3);
    if (causal != CausalVariant::none) visible = seen_by(causal, c.rows, queries, c.columns);
    if (has_mask && visible.empty()) visible = shown;
    for (std::size_t i = 0; i < shown.size(); ++i)
      if (shown[i] == 0) visible[i] = 0;

    auto const in = c.matrix<Element>(0, x), out = c.matrix<Element>(1);
    auto const mask = has_mask ? c.matrix<std::uint8_t>(2, shown) : GuardedMatrix<std::uint8_t>(1, 1);
    auto const run = [&](int first, int count, auto const& y) {
      if (has_mask)
        softmax(space, rows_of(in, first, count), rows_of(mask, first, count), y, options);
      else
        softmax(space, rows_of(in, first, count), y, options);
    };
    run(0, c.rows, out.view());
    auto const expected = reference(x, c.columns, options.scale, visible, row_sinks);
    bool const rounds = drawn > 5 || (has_sinks && c.kind != ValueKind::huge);
    c.compare("y", out, expected, rounds ? scales(x, expected, c.columns, options.scale) : std::vector<double>());
    c.unchanged("x", in, x);
    if (has_mask) c.unchanged("visible", mask, shown);
    if (by_row) return;  // a row's number decides what it sees
    c.same_bits("y", [&](int first, int count) {
      auto const y = view_of_nans<Element>(count, c.columns);
      run(first, count, y);
      return elements(y);
    });
  });
}

// Every combination of the options (CASES P50), with more queries than keys and fewer (P20), some of which see nothing
// (P21); what is hidden holds NaNs, which nobody sees.
TEST_CASE_TEMPLATE("softmax with a causal mask and sinks agrees with its definition in double", Element, double, float,
                   bf16, fp16) {
  constexpr int batch = 2, heads = 3;
  auto const sinks = random_values<Element>(heads, 5, -1, 4);
  for (auto const variant : {CausalVariant::none, CausalVariant::upper_left, CausalVariant::lower_right})
    for (bool const has_sinks : {false, true})
      for (bool const has_mask : {false, true})
        for (auto const& [queries, keys] : {std::pair{1, 5}, {4, 4}, {9, 5}, {5, 129}, {2, 4104}}) {
          CAPTURE(int(variant));
          CAPTURE(has_sinks);
          CAPTURE(has_mask);
          CAPTURE(keys);
          int const rows = batch * heads * queries;
          auto x = random_values<Element>(std::size_t(rows) * keys, keys, -4, 4);
          auto visible = seen_by(variant, rows, queries, keys);
          std::vector<double> row_sinks, mask(x.size(), 1);
          for (int r = 0; r < rows; ++r) row_sinks.push_back(has_sinks ? sinks[r / queries % heads] : -infinity);
          for (std::size_t i = 0; i < x.size(); ++i) {
            if (has_mask && i % 3 == 0) visible[i] = mask[i] = 0;
            if (visible[i] == 0) x[i] = NAN;
          }
          Place2D const place = keys == 129 ? Place2D{1, 3} : Place2D{0, 0};
          GuardedMatrix<Element> const in(rows, keys, x, place), out(rows, keys, place);
          GuardedMatrix<std::uint8_t> const shown(rows, keys, mask, place);
          auto const sink_view = view_of<Element>(sinks, heads);
          SoftmaxOptions<Element> options{.scale = 0.5, .causal = variant, .queries = queries};
          if (has_sinks) options.sinks = kfuse::as_tensor(Kokkos::View<Element const*, Space>(sink_view));
          if (has_mask)
            softmax(Space(), in.const_view(), shown.const_view(), out.view(), options);
          else
            softmax(Space(), in.const_view(), out.view(), options);
          auto const fault = disagreement<Element>(out.values(), reference(x, keys, 0.5, visible, row_sinks), keys);
          CHECK_MESSAGE(fault.empty(), fault);
          CHECK(out.guards_intact());
        }
}

TEST_CASE("softmax with sinks in fp32, in place, or with a workspace") {
  for (int const columns : {100, 70000}) {
    auto const x = random_values<bf16>(4 * std::size_t(columns), 1);
    std::vector<double> const sinks{1.5, -infinity};
    auto const in = view_of<bf16>(x, 4, columns), y = view_of_nans<bf16>(4, columns),
               z = view_of_nans<bf16>(4, columns);
    auto const view = view_of<float>(sinks, 2);
    SoftmaxOptions<float> const options{.sinks = kfuse::make_tensor<float const>(view.data(), 2), .queries = 1};
    softmax(Space(), in, y, options);
    auto const fault =
        disagreement<bf16>(download(y), reference(x, columns, 1, {}, {1.5, -infinity, 1.5, -infinity}), columns);
    CHECK_MESSAGE(fault.empty(), fault);
    kfuse::Workspace<Space> workspace(1 << 20);
    workspace.poison(Space());
    softmax(Space(), in, z, options, workspace);
    CHECK(same_bits(y, z));
    softmax(Space(), in, in, options);
    CHECK(same_bits(y, in));
  }
}

// Rows without memory: what a batch may bring that is longer than a matrix can be.
struct ManyRows {
  using stage = kfuse::ElementStage;
  std::ptrdiff_t rows;
  kfuse::Shape shape() const { return {rows, 4}; }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, kfuse::Place) const {
    x = {};
  }
};

// CASES P05: the rows of a chain are counted in 64 bits, and divided in 32.
TEST_CASE("causal masks and sinks know the query and the head of rows beyond 2^31, and refuse more than 2^32 - 1") {
  using Value = kfuse::Values<float, 1, kfuse::Access::single>;
  std::vector<float> const sinks{1, 2, 4, 8, 16};
  for (int const queries : {1, 3, 7, 1000, 65537}) {
    auto const causal = kfuse::causal_mask(CausalVariant::upper_left, queries, queries);
    auto const with_sinks = kfuse::softmax_with_sinks(kfuse::make_tensor(sinks.data(), 5), queries);
    for (std::int64_t const row : {0LL, 1LL, 1000LL, 1LL << 30, 1LL << 31, (1LL << 31) + 1, (1LL << 32) - 2}) {
      int const query = int(row % queries), head = int(row / queries % 5);
      CAPTURE(queries);
      CAPTURE(row);
      Value seen{{1}}, hidden{{1}};
      causal.apply(seen, {row, query});
      causal.apply(hidden, {row, query + 1});
      CHECK(seen[0] == 1);
      CHECK(hidden[0] == -infinity);
      auto sum = with_sinks.identity<float>();
      with_sinks.accumulate(sum, Value{{-std::numeric_limits<float>::infinity()}}, {row, 0});
      CHECK(sum.reference == sinks[head]);
    }
  }
  auto const error = [](auto const& stage, std::ptrdiff_t rows) {
    kfuse::Ledger const nothing_runs(kfuse::Ledger::Execution::none);
    return error_of([&] { kfuse::fuse(Space(), "test", ManyRows{rows} | stage); });
  };
  auto const causal = kfuse::causal_mask(CausalVariant::upper_left, 1, 4);
  auto const with_sinks = kfuse::softmax_with_sinks(kfuse::make_tensor(sinks.data(), 5), 1);
  std::ptrdiff_t const most = (std::ptrdiff_t(1) << 32) - 1;  // a multiple of 5
  CHECK(error(causal, most).empty());
  CHECK(error(with_sinks, most).empty());
  for (std::ptrdiff_t const rows : {most + 1, most * 5}) {
    CHECK(contains(error(causal, rows), "test: causal: " + std::to_string(rows) + " rows are more than 2^32 - 1"));
    CHECK(contains(error(with_sinks, rows), "test: sinks: " + std::to_string(rows) + " rows are more than 2^32 - 1"));
  }
}

// CASES P06, P08
TEST_CASE("softmax of zeros is the same everywhere and sums to one") {
  for (int const columns : {2, 3, 33, 513, 640, 781, 1000, 1408, 16384, 65536, 131072}) {
    CAPTURE(columns);
    auto const narrow = softmaxed<float>(std::vector<double>(2 * columns, 0), columns);
    auto const wide = softmaxed<double>(std::vector<double>(2 * columns, 0), columns);
    CHECK(deviation(narrow, std::vector<double>(2 * columns, 1.0 / columns), 0) <= 1e-6);
    CHECK(std::accumulate(narrow.begin(), narrow.begin() + columns, 0.0) == doctest::Approx(1).epsilon(1e-6));
    CHECK(std::accumulate(wide.begin() + columns, wide.end(), 0.0) == doctest::Approx(1).epsilon(1e-12));
  }
}

// CASES P15
TEST_CASE("softmax finds the one finite value among 100000") {
  int const columns = 100000;
  for (int const place : {0, 1, 50000, 99999}) {
    std::vector<double> x(columns, -infinity), expected(columns, 0);
    x[place] = 10;
    expected[place] = 1;
    CHECK(softmaxed<float>(x, columns) == expected);
  }
}
TEST_CASE("softmax keeps differences of values that are large") {
  auto const y = softmaxed<float>({-1e7, -1e7, -9999999, 1e30, -1e30, 1e30}, 3);
  CHECK(deviation(y, {0.211941558, 0.211941558, 0.576116885, 0.5, 0, 0.5}) <= 1e-5);
}
TEST_CASE_TEMPLATE("softmax of a row of -infinity is zero, and of a NaN or +infinity NaN", Element, float, bf16) {
  for (int const columns : {3, 70, 5000}) {
    std::vector<double> x(4 * columns, 1), expected(4 * columns, 1.0 / columns);
    std::fill_n(x.begin(), columns, -infinity);
    std::fill_n(expected.begin(), columns, 0);
    x[columns + 1] = NAN;
    x[2 * columns + columns / 2] = infinity;
    std::fill_n(expected.begin() + columns, 2 * columns, NAN);
    CHECK(deviation(softmaxed<Element>(x, columns), expected, 0) <= tolerance<Element>());
  }
}

// CASES P16
TEST_CASE("softmax of 16-bit values sums in float") {
  CHECK(softmaxed<bf16>(std::vector<double>(512, 0), 512) == std::vector<double>(512, 0.001953125));
  CHECK(softmaxed<bf16>(std::vector<double>(4096, 0), 4096) == std::vector<double>(4096, 1.0 / 4096));
}

TEST_CASE("softmax in place, or with a workspace, has the same bits") {
  for (int const columns : {129, 1024, 131072 + 3}) {
    auto const x = view_of<float>(random_values<float>(2 * columns, 1), 2, columns);
    auto const all = view_of<std::uint8_t>(std::vector<double>(2 * columns, 1), 2, columns);
    auto const y = view_of_nans<float>(2, columns), z = view_of_nans<float>(2, columns);
    kfuse::Workspace<Space> workspace(1 << 20);
    workspace.poison(Space());
    softmax(Space(), x, y);
    softmax(Space(), x, z, {}, workspace);
    CHECK(same_bits(y, z));
    softmax(Space(), x, all, z, {}, workspace);
    CHECK(same_bits(y, z));
    softmax(Space(), x, x);
    CHECK(same_bits(y, x));
  }
}

// CASES P09
TEST_CASE("softmax of nothing writes nothing") {
  softmax(Space(), view_of_nans<float>(0, 4), view_of_nans<float>(0, 4));
  softmax(Space(), view_of_nans<float>(4, 0), view_of_nans<float>(4, 0));
  auto const none = view_of_nans<float>(0, 4);
  auto const sinks = kfuse::make_tensor(static_cast<float const*>(none.data()), 0);
  float one = 0;
  for (auto const causal : {CausalVariant::none, CausalVariant::upper_left, CausalVariant::lower_right})
    for (int const queries : {0, 3}) {
      softmax(Space(), none, none, {.causal = causal, .sinks = sinks, .queries = queries});
      softmax(Space(), none, none,
              {.causal = causal, .sinks = kfuse::make_tensor<float const>(&one, 1), .queries = queries});
    }
}

TEST_CASE_TEMPLATE("the stages of softmax give what it gives", Element, double, float) {
  using namespace kfuse;
  int const rows = 8, columns = std::is_same_v<Element, double> ? 16384 : 65536;  // longer ones have other stages
  auto const x = view_of<Element>(random_values<Element>(std::size_t(rows) * columns, 1), rows, columns);
  auto const in_chain = view_of_nans<Element>(rows, columns), y = view_of_nans<Element>(rows, columns);
  softmax(Space(), x, y);
  fuse(Space(), "test", load(x) | softmax() | store(in_chain));
  CHECK(same_bits(in_chain, y));
}

TEST_CASE("softmax refuses what does not fit, and writes nothing") {
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4), y = view_of_nans<float>(3, 4);
  auto const few = view_of<std::uint8_t>({1, 1, 1, 1}, 1, 4);
  CHECK(contains(error_of([&] { softmax(Space(), x, few, y); }), "kfuse::softmax: visible: shape [1, 4]"));
  CHECK(contains(error_of([&] { softmax(Space(), x, view_of_nans<float>(4, 3)); }), "kfuse::softmax: y: shape [4, 3]"));
  for (double const scale : {infinity, -infinity, double(NAN), 1e300, -1e39, 1e-300})
    for (auto const causal : {CausalVariant::none, CausalVariant::lower_right}) {
      SoftmaxOptions<float> const options{.scale = scale, .causal = causal, .queries = 3};
      auto const all = view_of<std::uint8_t>(std::vector<double>(12, 1), 3, 4);
      CHECK(contains(error_of([&] { softmax(Space(), x, y, options); }), "kfuse::softmax: scale is "));
      CHECK(contains(error_of([&] { softmax(Space(), x, all, y, options); }), "kfuse::softmax: scale is "));
    }
  for (auto const causal : {CausalVariant::none, CausalVariant::upper_left})
    CHECK(contains(error_of([&] { softmax(Space(), x, y, {.causal = causal, .queries = -5}); }), "queries is -5"));
  CHECK(contains(error_of([&] { softmax(Space(), x, y, {.causal = CausalVariant(9), .queries = 3}); }),
                 "causal: there is no variant 9"));
  CHECK(contains(error_of([&] { softmax(Space(), x, y, {.causal = CausalVariant::upper_left}); }),
                 "causal: 3 rows are not"));
  CHECK(contains(error_of([&] { softmax(Space(), x, y, {.causal = CausalVariant::lower_right, .queries = 2}); }),
                 "options.queries"));
  auto const sinks = kfuse::make_tensor<float const>(x.data(), 2);
  CHECK(contains(error_of([&] { softmax(Space(), x, y, {.sinks = sinks, .queries = 1}); }), "one sink for each head"));
  CHECK(contains(error_of([&] { softmax(Space(), x, y, {.sinks = sinks}); }), "kfuse::softmax: sinks"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("softmax moves its arguments once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 64}, {64, 1}};
  kfuse::Tensor<std::uint8_t, 2> const m{nullptr, {10, 64}, {64, 1}};
  CHECK(kfuse::softmax_traffic(Space(), x, x).bytes() == 2 * 10 * 64 * 2);
  CHECK(kfuse::softmax_traffic(Space(), x, m, x).bytes() == 2 * 10 * 64 * 2 + 10 * 64);
  bf16 sinks[5] = {};
  CHECK(kfuse::softmax_traffic(Space(), x, x, {.sinks = kfuse::make_tensor<bf16 const>(sinks, 5), .queries = 2})
            .bytes() == 2 * 10 * 64 * 2 + 5 * 2);
}

}  // namespace
