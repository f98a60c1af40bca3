// SPDX-License-Identifier: Apache-2.0
// The stages that no other test covers: arithmetic, storage types, masks, heads, random values.
#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/argmax.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/batch.hpp>
#include <kfuse/fused/stage/cross_entropy.hpp>
#include <kfuse/fused/stage/heads.hpp>
#include <kfuse/fused/stage/log_sum_exp.hpp>
#include <kfuse/fused/stage/mask.hpp>
#include <kfuse/fused/stage/norm.hpp>
#include <kfuse/fused/stage/softmax.hpp>
#include <kfuse/fused/stage/sum_into.hpp>
#include <kfuse/fused/stage/uniform.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::fp16;
using kfuse::fuse;
using kfuse::load;
using kfuse::store;
using namespace kfuse::test;

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST_CASE_TEMPLATE("add, multiply, bias, weight and scale do what they say", Element, double, float, bf16, fp16) {
  Space const space = another_instance();
  int const rows = 3;
  for (int const columns : {1, 7, 64, 1025, 20000})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 3}}) {
      auto const n = std::size_t(rows) * columns;
      auto const x = random_values<Element>(n, 1), a = random_values<Element>(n, 2), m = random_values<Element>(n, 3);
      auto const b = random_values<Element>(columns, 4), w = random_values<Element>(columns, 5);
      std::vector<double> expected(n);
      for (std::size_t i = 0; i < n; ++i) expected[i] = ((x[i] + a[i]) * m[i] + b[i % columns]) * w[i % columns] * 0.75;
      GuardedMatrix<Element> const in(rows, columns, x, place), added(rows, columns, a, place);
      GuardedMatrix<Element> const factor(rows, columns, m, place), out(rows, columns, place);
      fuse(space, "test",
           load(in.const_view()) | kfuse::add(added.const_view()) | kfuse::multiply(factor.const_view()) |
               kfuse::bias(view_of<Element>(b, columns)) | kfuse::weight(view_of<Element>(w, columns)) |
               kfuse::scale(0.75) | store(out.view()));
      CHECK(deviation(out.values(), expected, 1) <= tolerance<Element>());
      CHECK(out.guards_intact());
    }
}

TEST_CASE_TEMPLATE("8-bit numbers are loaded exactly and stored rounded to nearest", Element, kfuse::fp8_e4m3,
                   kfuse::fp8_e5m2) {
  for (int const columns : {5, 64, 1000})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 0}}) {
      auto const x = random_values<float>(2 * columns, columns, -100, 100);
      GuardedMatrix<float> const in(2, columns, x, place), back(2, columns, place);
      GuardedMatrix<Element> const narrow(2, columns, place);
      fuse(Space(), "test", load(in.const_view()) | store(narrow.view()));
      fuse(Space(), "test", load(narrow.const_view()) | store(back.view()));
      CHECK(narrow.values() == rounded<Element>(x));
      CHECK(back.values() == narrow.values());
      CHECK(narrow.guards_intact());
    }
}

TEST_CASE_TEMPLATE("mask puts a value where it is zero, whatever was there", Element, double, float, bf16, fp16) {
  for (int const columns : {1, 4, 67, 1024})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 1}}) {
      auto x = random_values<Element>(std::size_t(2) * columns, columns);
      x.back() = std::numeric_limits<double>::quiet_NaN(), x.front() = infinity;
      auto const draws = random_values(x.size(), 3, -3, 3);
      std::vector<double> shown(x.size());  // 0, 1 and 255
      for (std::size_t i = 0; i < x.size(); ++i) shown[i] = draws[i] < 0 ? 0 : draws[i] < 1 ? 255 : 1;
      shown.back() = shown.front() = 0;
      GuardedMatrix<Element> const in(2, columns, x, place), out(2, columns, place);
      GuardedMatrix<std::uint8_t> const m(2, columns, shown, place);
      auto const masked = [&](double value) {
        auto y = x;
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = shown[i] != 0 ? y[i] : value;
        return y;
      };
      fuse(Space(), "test", load(in.const_view()) | kfuse::mask(m.const_view()) | store(out.view()));
      CHECK(out.values() == masked(-infinity));
      fuse(Space(), "test", load(in.const_view()) | kfuse::mask(m.const_view(), 0.5) | store(out.view()));
      CHECK(out.values() == masked(0.5));
      CHECK(out.guards_intact());
    }
}
TEST_CASE("a mask is read in one access only where it is aligned for that") {
  alignas(16) static std::uint8_t const memory[64] = {};
  auto const is_wide = [&](int shift, int stride, int width) {
    kfuse::Tensor<std::uint8_t const, 2> const m{memory + shift, {2, 16}, {stride, 1}};
    return kfuse::impl::is_wide(kfuse::impl::as_chain(kfuse::mask(m)), width);
  };
  CHECK(is_wide(0, 16, 8));
  CHECK(is_wide(8, 24, 8));
  CHECK(!is_wide(4, 16, 8));
  CHECK(is_wide(4, 20, 4));
  CHECK(!is_wide(0, 17, 8));
  CHECK(!is_wide(1, 16, 2));
}
TEST_CASE("attention_mask hides later keys, keys beyond the length and keys that are masked") {
  int const batch = 3, heads = 2, queries = 3, keys = 5, rows = batch * heads * queries;
  std::vector<int> const lengths{5, 4, 9};  // the last is clamped to the keys there are
  auto const length = view_of<int>({5, 4, 9}, batch);
  std::vector<double> shown(batch * keys, 1);
  shown[0 * keys + 1] = shown[2 * keys + 4] = 0;
  auto const visible = view_of<std::uint8_t>(shown, batch, keys);
  auto const scores = view_of<float>(std::vector<double>(rows * keys, 1), rows, keys),
             y = view_of_nans<float>(rows, keys);
  for (auto const causal : {kfuse::Causal::no, kfuse::Causal::yes}) {
    kfuse::AttentionMask const mask{queries, keys, causal, length.data(), visible.data(), keys};
    fuse(Space(), "test", load(scores) | kfuse::attention_mask(mask, batch, heads) | store(y));
    auto const values = download(y);
    for (int row = 0; row < rows; ++row)
      for (int k = 0; k < keys; ++k) {
        int const b = row / (heads * queries), q = row % queries, n = std::min(lengths[b], keys);
        bool const sees = k < n && (causal == kfuse::Causal::no || k <= n - queries + q) && shown[b * keys + k] != 0;
        CHECK(values[row * keys + k] == (sees ? 1 : -infinity));
      }
  }
}

TEST_CASE("rows of heads go to memory by head and come back") {
  for (int const head_dim : {3, 16, 64}) {
    int const batch = 2, tokens = 3, heads = 5, rows = batch * tokens, columns = heads * head_dim;
    auto const x = random_values<bf16>(rows * columns, head_dim);
    auto const by_head = view_of_nans<bf16>(batch, heads, tokens, head_dim);
    auto const back = view_of_nans<bf16>(rows, columns), part = view_of_nans<bf16>(rows, 2 * head_dim);
    fuse(Space(), "test",
         load(view_of<bf16>(x, rows, columns)) | kfuse::store_heads(by_head) | kfuse::store_columns(part, head_dim));
    fuse(Space(), "test", kfuse::load_heads(by_head) | store(back));
    auto const values = download(by_head), columns_of = download(part);
    int wrong = 0;
    for (int row = 0; row < rows; ++row)
      for (int c = 0; c < columns; ++c) {
        std::size_t const place =
            (std::size_t(row / tokens * heads + c / head_dim) * tokens + row % tokens) * head_dim + c % head_dim;
        wrong += values[place] != x[row * columns + c];
        if (c < 2 * head_dim) wrong += columns_of[row * 2 * head_dim + c] != x[row * columns + c + head_dim];
      }
    CHECK(wrong == 0);
    CHECK(download(back) == x);
  }
}

// CASES P11
TEST_CASE("an output whose rows lie over one another is refused, at any rank") {
  auto const memory = view_of<float>(std::vector<double>(1000, 5), 1000);
  auto const x = view_of<float>(random_values<float>(2 * 3 * 4 * 8, 1), 2 * 3, 4 * 8);
  auto const rows = view_of<float>(random_values<float>(2 * 3 * 4 * 8, 1), 2 * 3 * 4, 8);
  auto const to_batch = [&](int batch, int row) {
    kfuse::Tensor<float, 3> const to{memory.data(), {6, 4, 8}, {batch, row, 1}};
    return error_of([&] { fuse(Space(), "test", load(rows) | kfuse::store_batch(to)); });
  };
  auto const to_heads = [&](int batch, int head, int token) {
    kfuse::Tensor<float, 4> const to{memory.data(), {2, 4, 3, 8}, {batch, head, token, 1}};
    return error_of([&] { fuse(Space(), "test", load(x) | kfuse::store_heads(to)); });
  };
  char const* const over = ": its rows overlap";
  for (auto const& [batch, row] : {std::pair(100, 4), {100, 0}, {0, 8}, {31, 8}, {8, 40}, {100, 100}})
    CHECK(contains(to_batch(batch, row), std::string("test: store_batch") + over));
  for (auto const& [batch, head, token] :
       {std::tuple(100, 8, 8), {96, 24, 4}, {0, 24, 8}, {95, 24, 8}, {96, 0, 8}, {24, 24, 8}})
    CHECK(contains(to_heads(batch, head, token), std::string("test: store_heads") + over));
  CHECK(download(memory) == std::vector<double>(1000, 5));

  for (auto const& [batch, row] : {std::pair(32, 8), {100, 9}, {8, 48}, {10, 100}}) CHECK(to_batch(batch, row).empty());
  for (auto const& [batch, head, token] : {std::tuple(96, 24, 8), {96, 8, 32}, {24, 48, 8}, {500, 100, 9}})
    CHECK(to_heads(batch, head, token).empty());
}

TEST_CASE("a scale that no float holds is refused") {
  auto const x = view_of<float>({1, 2, 3}, 1, 3);
  for (double const scale : {double(NAN), infinity, -infinity, 1e300, -1e39, 1e-300})
    CHECK(contains(error_of([&] { fuse(Space(), "test", load(x) | kfuse::scale(scale) | store(x)); }),
                   "test: scale is "));
  fuse(Space(), "test", load(x) | kfuse::scale(1e38) | kfuse::scale(1e-38 * 2) | kfuse::scale(0) | store(x));
  CHECK(download(x) == std::vector<double>(3, 0));
}

TEST_CASE("uniform values fill their interval evenly and follow from seed, row and column") {
  int const rows = 256, columns = 1001;
  auto const y = view_of_nans<float>(rows, columns), row = view_of_nans<float>(1, columns);
  fuse(Space(), "test", kfuse::uniform(rows, columns, -2, 6, {.seed = 9}) | store(y));
  fuse(Space(), "test", kfuse::uniform(1, columns, -2, 6, {.seed = 9}) | store(row));
  auto const values = download(y), first = download(row);
  std::vector<double> counts(8, 0);
  CHECK(*std::min_element(values.begin(), values.end()) >= -2);
  REQUIRE(*std::max_element(values.begin(), values.end()) < 6);
  for (double const v : values) counts[int(v + 2)] += 8.0 / double(values.size());
  for (double const c : counts) CHECK(c == doctest::Approx(1).epsilon(0.03));
  CHECK(std::vector(values.begin(), values.begin() + columns) == first);

  // Of products that are not exact, each step is rounded: so it is the same everywhere.
  float const low = -0.3f, span = 0.7f - low;
  fuse(Space(), "test", kfuse::uniform(1, columns, low, 0.7f, {.seed = 9}) | store(row));
  auto const scaled = download(row);
  for (int c = 0; c < columns; ++c) {
    double const fraction = (first[c] + 2) / 8;  // exact
    CHECK(scaled[c] == double(float(double(low) + double(float(double(span) * fraction)))));
  }

  float const high = std::nextafter(1.0f, 2.0f);  // between 1 and this there is nothing to round to
  fuse(Space(), "test", kfuse::uniform(rows, columns, 1, high, {.seed = 9}) | store(y));
  CHECK(download(y) == std::vector<double>(values.size(), 1));
}

// A lane that comes second need not exchange two sums whose merge is the same either way round.
template <class Real, class Stage>
void check_commutes(Stage const& stage) {
  static_assert(kfuse::impl::commutes<Stage, kfuse::impl::SumOf<Real, Stage>>);
  CAPTURE(typeid(Stage).name());
  using Pair = kfuse::Values<Real, 2, kfuse::Access::single>;
  Real const kinds[] = {-Real(infinity),
                        -3,
                        -0.0f,
                        0,
                        Real(0.1),
                        80,
                        Real(1e30),
                        -std::numeric_limits<Real>::max(),
                        std::numeric_limits<Real>::max(),
                        Real(-0x1.a2d2ee362e0d7p+1022),  // infinite in float
                        Real(infinity),
                        Kokkos::Experimental::quiet_NaN_v<Real>};
  auto sum_of = [&](Real u, Real v, int column) {
    auto sum = stage.template identity<Real>();
    kfuse::impl::accumulate(stage, sum, Pair{{u, v}}, {0, column}, kfuse::impl::prepare(stage, 0));
    return sum;
  };
  auto const same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for (Real const u : kinds)
    for (Real const v : kinds)
      for (Real const w : kinds)
        for (Real const z : kinds) {
          auto const a = sum_of(u, v, 0), b = sum_of(w, z, 2);
          auto first = a, second = b;
          kfuse::impl::merge(stage, first, b);
          kfuse::impl::merge(stage, second, a);
          if constexpr (requires { first.lost; })
            REQUIRE((same(first.sum, second.sum) && same(first.lost, second.lost)));
          else if constexpr (std::is_floating_point_v<decltype(first)>)
            REQUIRE(same(first, second));
          else if constexpr (requires { first.index; })
            REQUIRE((first.index == second.index && same(first.value, second.value)));
          else
            REQUIRE((first.reference == second.reference && same(first.shares.sum, second.shares.sum)));
          if constexpr (requires { first.shares.logit; }) REQUIRE(same(first.shares.logit, second.shares.logit));
          if constexpr (requires { first.shares.weights; })
            REQUIRE((same(first.shares.half_distance, second.shares.half_distance) &&
                     same(first.shares.weights, second.shares.weights)));
        }
}
TEST_CASE_TEMPLATE("sums that are said to merge the same either way round do so", Real, float, double) {
  int const label = 3;
  Real loss = 0;
  check_commutes<Real>(kfuse::LogSoftmax());
  check_commutes<Real>(kfuse::Argmax<float>());
  check_commutes<Real>(kfuse::SoftmaxWithSinks<float>{{}, 1});
  check_commutes<Real>(kfuse::RootMeanSquare(1e-6));
  check_commutes<Real>(kfuse::Center());
  check_commutes<Real>(kfuse::DivideBySum());
  check_commutes<Real>(kfuse::impl::SumInto<Real>(nullptr, nullptr));
  auto const labels = kfuse::impl::make_labels(kfuse::make_tensor(&label, 1), 4, -100);
  check_commutes<Real>(kfuse::impl::CrossEntropy<Real, kfuse::impl::Smoothing::no>{
      labels, {}, nullptr, kfuse::make_tensor(&loss, 1), {}, 0, 0, 0, 0});
  check_commutes<Real>(kfuse::impl::CrossEntropy<Real, kfuse::impl::Smoothing::yes>{
      labels, {}, nullptr, kfuse::make_tensor(&loss, 1), {}, 0.5, 0, 0, 0.125});
}

}  // namespace
