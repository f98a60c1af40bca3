// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/rmsnorm.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "norm_options.hpp"
#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::fp16;
using kfuse::NormCasting;
using kfuse::NormWeight;
using kfuse::rmsnorm;
using namespace kfuse::test;

// The definition: y = x / sqrt(mean(x^2) + epsilon) * weight
std::vector<double> reference(std::vector<double> const& x, std::vector<double> const& weight, double epsilon) {
  std::size_t const columns = weight.size(), rows = columns > 0 ? x.size() / columns : 0;
  std::vector<double> y(x.size());
  for (std::size_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::size_t c = 0; c < columns; ++c) squares += x[r * columns + c] * x[r * columns + c];
    double const root = std::sqrt(squares / double(columns) + epsilon);
    if (root == 0) continue;  // zeros stay zeros
    for (std::size_t c = 0; c < columns; ++c) y[r * columns + c] = x[r * columns + c] / root * weight[c];
  }
  return y;
}

std::vector<double> ones(int n) {
  return std::vector<double>(n, 1.0);
}

// rmsnorm of rows by weights of one, in one element type.
template <class Element>
std::vector<double> normed(std::vector<double> const& x, int rows, int columns, double epsilon) {
  auto const y = view_of_nans<Element>(rows, columns);
  rmsnorm(Space(), view_of<Element>(x, rows, columns), view_of<Element>(ones(columns), columns), y,
          {.epsilon = epsilon});
  return download(y);
}

TEST_CASE_TEMPLATE("rmsnorm agrees with its definition in double", Element, double, float, bf16, fp16) {
  Space const space = another_instance();
  for (int const columns : {1, 2, 7, 8, 31, 32, 33, 64, 257, 1000, 1023, 4096, 4097, 16384})
    for (Place2D const place : {Place2D{0, 0}, Place2D{1, 0}, Place2D{0, 8}, Place2D{3, 5}}) {
      int const rows = columns < 100 ? 5 : 2;
      CAPTURE(columns);
      CAPTURE(place.shift);
      CAPTURE(place.gap);
      auto const x = random_values<Element>(std::size_t(rows) * columns, columns);
      auto const w = random_values<Element>(columns, 1);
      GuardedMatrix<Element> const in(rows, columns, x, place), weight(1, columns, w, place), out(rows, columns, place);
      rmsnorm(space, in.const_view(), Kokkos::subview(weight.const_view(), 0, Kokkos::ALL), out.view(),
              {.epsilon = 1e-5});
      CHECK(deviation(out.values(), reference(x, w, 1e-5)) <= tolerance<Element>());
      CHECK(out.guards_intact());
      CHECK(in.values() == x);
    }
}

TEST_CASE("rmsnorm is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("rmsnorm", {.power = 2}, [&]<class Element>(RandomCase& c) {
    auto const x = c.values<Element>(0), w = random_values<Element>(c.columns, c.seed);
    auto const in = c.matrix<Element>(0, x), y = c.matrix<Element>(1);
    auto const weight = view_of<Element>(w, c.columns);
    auto const options = draw_norm_options<kfuse::RmsNormOptions>(c);
    rmsnorm(space, in.const_view(), weight, y.view(), options);
    auto const normed = reference(x, ones(c.columns), options.epsilon);
    auto const expected = weighed<Element>(normed, w, options, y.values());
    c.compare("y", y, expected);
    c.expect(rounded_right<Element>(y.values(), expected), "y is rounded elsewhere, or twice");
    c.unchanged("x", in, x);
    c.same_bits("y", [&](int first, int count) {
      auto const part = view_of_nans<Element>(count, c.columns);
      rmsnorm(space, rows_of(in, first, count), weight, part, options);
      return elements(part);
    });
  });
}

TEST_CASE("rmsnorm in place gives the bits it gives elsewhere") {
  int const rows = 3;
  for (int const columns : {33, 4096, 40000}) {
    auto const x = random_values<bf16>(std::size_t(rows) * columns, 5);
    auto const in = view_of<bf16>(x, rows, columns), out = view_of_nans<bf16>(rows, columns);
    auto const w = view_of<bf16>(random_values<bf16>(columns, 6), columns);
    rmsnorm(Space(), in, w, out);
    rmsnorm(Space(), in, w, in);
    CHECK(same_bits(in, out));
  }
}

// CASES P02
TEST_CASE("rmsnorm sums squares that a 16-bit number cannot hold") {
  CHECK(normed<fp16>(std::vector<double>(4096, 300), 1, 4096, 1e-6) == ones(4096));
  std::vector<double> x(4096, 0);
  x[0] = 300;
  auto const y = normed<fp16>(x, 1, 4096, 1e-6);
  CHECK(y[0] == 64);
  CHECK(std::count(y.begin(), y.end(), 0.0) == 4095);
}

// CASES P03
TEST_CASE_TEMPLATE("rmsnorm of zeros is zero", Element, double, float, bf16, fp16) {
  CHECK(normed<Element>({0, 0, 0}, 3, 1, 1e-6) == std::vector<double>(3, 0));
}
TEST_CASE("rmsnorm adds epsilon to the mean under the root") {
  auto const y = normed<float>({2, 1e-3, -1e-3}, 3, 1, 1e-6);
  CHECK(deviation(y, {0.999999875, 0.707106781, -0.707106781}) <= 1e-6);
  auto const small = normed<float>(std::vector<double>(8, 1e-4), 1, 8, 1e-6);
  CHECK(deviation(small, std::vector<double>(8, 0.0995037190)) <= 1e-5);
}

// CASES P06
TEST_CASE("rmsnorm of 1, 2, 3, ... of 48 and 64 columns") {
  auto const counting = [](int n) {
    std::vector<double> x(n);
    for (int i = 0; i < n; ++i) x[i] = i + 1;
    return x;
  };
  auto const a = normed<float>(counting(48), 1, 48, 0), b = normed<float>(counting(64), 1, 64, 0);
  CHECK(deviation({a[0], a[47]}, {0.0355297145, 1.705426296}) <= 1e-6);
  CHECK(deviation({b[0], b[63]}, {0.0267500188, 1.712001203}) <= 1e-6);
}

// CASES P07
TEST_CASE("rmsnorm of a slice of packed rows has the bits of a packed copy and leaves the rest alone") {
  int const rows = 1024, heads = 16, head_dim = 128, packed = 2 * heads * head_dim;
  auto const all = random_values<bf16>(std::size_t(rows) * packed, 3);
  auto const buffer = view_of<bf16>(all, rows, packed);
  auto const w = view_of<bf16>(random_values<bf16>(head_dim, 4), head_dim);
  for (int const head : {0, 7, 15}) {
    auto const slice = Kokkos::subview(buffer, Kokkos::ALL, Kokkos::pair(head * head_dim, (head + 1) * head_dim));
    std::vector<double> values;
    for (int r = 0; r < rows; ++r)
      values.insert(values.end(), all.begin() + r * packed + head * head_dim,
                    all.begin() + r * packed + (head + 1) * head_dim);
    auto const copy = view_of<bf16>(values, rows, head_dim), expected = view_of_nans<bf16>(rows, head_dim);
    rmsnorm(Space(), copy, w, expected);
    rmsnorm(Space(), slice, w, slice);
    auto const now = download(buffer), y = download(expected);
    std::size_t differ = 0;
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < packed; ++c) {
        bool const here = c / head_dim == head;
        double const want = here ? y[r * head_dim + c % head_dim] : all[r * packed + c];
        differ += now[r * packed + c] != want;
      }
    CHECK(differ == 0);
    upload(buffer, all);
  }
}
TEST_CASE("rmsnorm refuses rows whose values are not side by side") {
  auto const matrix = view_of<float>({1, 2, 3, 4}, 2, 2);
  Kokkos::View<float**, Kokkos::LayoutStride, Space> const x(matrix.data(), Kokkos::LayoutStride(2, 1, 2, 2));
  auto const w = view_of<float>({1, 1}, 2);
  auto const y = view_of_nans<float>(2, 2);
  std::string const error = error_of([&] { rmsnorm(Space(), x, w, y); });
  CHECK(contains(error, "kfuse::rmsnorm: x"));
  CHECK(contains(error, "not contiguous"));
  CHECK(std::isnan(download(y)[0]));
}

// CASES P08
TEST_CASE("rmsnorm takes very wide rows and very many") {
  for (int const columns : {16384, 32768, 65536, 131072})
    CHECK(deviation(normed<float>(ones(2 * columns), 2, columns, 1e-6),
                    std::vector<double>(2 * columns, 1 / std::sqrt(1 + 1e-6))) <= 1e-6);
  for (int const rows : {65535, 65536, 70000, 131073}) {
    std::vector<double> x(4 * std::size_t(rows));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = double(i / 4 % 7 + 1);
    auto const y = normed<float>(x, rows, 4, 1e-6);
    CHECK(deviation(y, std::vector<double>(x.size(), 1)) <= 1e-6);
    CHECK(y.back() == doctest::Approx(1));
  }
}

// CASES P05
TEST_CASE("rmsnorm reaches rows more than 2^31 elements away") {
  kfuse::Tensor<float, 2> const far{nullptr, {8388609, 256}, {256, 1}};
  CHECK(far.at(8388608, 0) - far.data == 2147483648);

  std::ptrdiff_t const stride = (std::ptrdiff_t(1) << 31) + 8;
  // 2 GiB, of which two rows are touched.
  Kokkos::View<kfuse::fp8_e5m2*, Space> const memory(Kokkos::view_alloc(Kokkos::WithoutInitializing, "far"),
                                                     stride + 8);
  kfuse::Tensor<kfuse::fp8_e5m2, 2> const x{memory.data(), {2, 8}, {stride, 1}};
  for (int const row : {0, 1}) {
    Kokkos::View<kfuse::fp8_e5m2*, Space, Kokkos::MemoryUnmanaged> const values(x.at(row), 8);
    upload(values, std::vector<double>(8, row == 0 ? 0 : 2));
  }
  auto const y = view_of_nans<float>(2, 8);
  rmsnorm(Space(), x, view_of<float>(ones(8), 8), y);
  CHECK(deviation(download(y), {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}) <= 1e-6);
}

// CASES P09
TEST_CASE("rmsnorm of nothing writes nothing, and the next call is right") {
  rmsnorm(Space(), kfuse::Tensor<float, 2>{nullptr, {0, 8}, {8, 1}}, view_of<float>(ones(8), 8),
          kfuse::Tensor<float, 2>{nullptr, {0, 8}, {8, 1}});
  rmsnorm(Space(), view_of_nans<float>(3, 0), view_of_nans<float>(0), view_of_nans<float>(3, 0));
  CHECK(normed<float>({3, 3}, 1, 2, 0) == ones(2));
}

// CASES P12
TEST_CASE("rmsnorm of 16-bit values takes weights of 32 bits and stores either") {
  auto const x = view_of<bf16>({3, 1}, 1, 2);
  auto const weight = view_of<float>({1, 1}, 2);
  auto const narrow = view_of_nans<bf16>(1, 2);
  auto const wide = view_of_nans<float>(1, 2);
  rmsnorm(Space(), x, weight, narrow);
  rmsnorm(Space(), x, weight, wide);
  CHECK(download(narrow) == rounded<bf16>(std::vector<double>{1.34164065, 0.44721355}));
  CHECK(deviation(download(wide), {1.34164065, 0.44721355}) <= 1e-6);
}

// Also where x has fewer bits: constant rows show every digit that a sum of squares loses.
TEST_CASE_TEMPLATE("rmsnorm is as exact as the type of its result", Element, float, bf16, fp16) {
  for (int const columns : {300, 4096, 65536}) {
    CAPTURE(columns);
    for (double const value : {1.37, 1.63, 1.9}) {
      auto const x = rounded<Element>(std::vector<double>(columns, value));
      auto const y = view_of_nans<float>(1, columns);
      rmsnorm(Space(), view_of<Element>(x, 1, columns), view_of<Element>(ones(columns), columns), y);
      CHECK(disagreement<float>(download(y), reference(x, ones(columns), 1e-6), columns) == "");
    }
  }
}

TEST_CASE_TEMPLATE("the stages of rmsnorm give what it gives", Element, double, float) {
  using namespace kfuse;
  int const columns = 65536;
  auto const x = view_of<Element>(random_values<Element>(columns, 1), 1, columns);
  auto const in_chain = view_of_nans<Element>(1, columns), y = view_of_nans<Element>(1, columns);
  auto const weight = view_of<bf16>(random_values<bf16>(columns, 2), columns);  // which says nothing about the sums
  rmsnorm(Space(), x, weight, y);
  fuse(Space(), "test", load(x) | rmsnorm(weight) | store(in_chain));
  CHECK(same_bits(in_chain, y));
}

// What the header says of values whose squares float cannot hold.
TEST_CASE_TEMPLATE("rmsnorm of huge and tiny values is what its header says", Element, double, float) {
  int const columns = 100;
  double const power = std::is_same_v<Element, double> ? 8 : 1;  // a double has eight times the exponents
  auto const of = [&](double exponent, double epsilon) {
    double const value = std::exp2(power * exponent);
    auto y = normed<Element>(std::vector<double>(columns, value), 1, columns, epsilon);
    for (double& v : y) v *= std::hypot(value, std::sqrt(epsilon)) / value;
    return y;
  };
  std::vector<double> const zeros(columns, 0);
  CHECK(deviation(of(60, 0), ones(columns)) <= tolerance<Element>());
  CHECK(of(64, 0) == zeros);
  CHECK(of(64, 1e-6) == zeros);
  CHECK(deviation(of(-62, 0), ones(columns)) <= tolerance<Element>());
  CHECK(of(-80, 0) == zeros);
  CHECK(deviation(of(-80, 1e-6), ones(columns)) <= tolerance<Element>());
}

TEST_CASE("rmsnorm adds one to weights in float") {
  auto const wide = view_of_nans<float>(1, 2);
  rmsnorm(Space(), view_of<bf16>({3, 1}, 1, 2), view_of<bf16>({3.140625, 3.140625}, 2), wide,
          {.weight = NormWeight::one_plus});
  CHECK(deviation(download(wide), {5.55523083, 1.85174361}) <= 1e-6);
}

// What Hugging Face's LlamaRMSNorm gives: the normalised value is rounded, and then its product with the weight.
TEST_CASE_TEMPLATE("rmsnorm rounds before the weight, too, where it casts as Llama does", Element, float, bf16, fp16) {
  int const rows = 8, columns = 1000;
  auto const x = random_values<Element>(rows * columns, 1), w = random_values<Element>(columns, 2);
  auto const normed = rounded<Element>(reference(x, ones(columns), 1e-6));
  for (NormWeight const stored : {NormWeight::as_given, NormWeight::one_plus}) {
    double const offset = stored == NormWeight::one_plus ? 1 : 0;
    std::vector<double> expected(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] = rounded<Element>(normed[i] * (w[i % columns] + offset));
    auto const differ = [&](NormCasting casting) {
      auto const y = view_of_nans<Element>(rows, columns);
      rmsnorm(Space(), view_of<Element>(x, rows, columns), view_of<Element>(w, columns), y,
              {.weight = stored, .casting = casting});
      auto const actual = download(y);
      CHECK(deviation(actual, expected) <= 2 * tolerance<Element>());
      int n = 0;
      for (std::size_t i = 0; i < x.size(); ++i) n += actual[i] != expected[i];
      return n;
    };
    if (std::is_same_v<Element, float>) {
      differ(NormCasting::llama);
      continue;
    }
    CHECK(differ(NormCasting::llama) <= 8);  // where rounding is a matter of the sum's last bit
    CHECK(differ(NormCasting::gemma) >= 800);
  }
}

TEST_CASE("rmsnorm with a workspace has the same bits") {
  int const columns = 131072 + 3;
  auto const x = view_of<float>(random_values<float>(columns, 8), 1, columns);
  auto const w = view_of<float>(ones(columns), columns);
  auto const a = view_of_nans<float>(1, columns), b = view_of_nans<float>(1, columns);
  kfuse::Workspace<Space> workspace(1 << 20);
  workspace.poison(Space());
  rmsnorm(Space(), x, w, a);
  rmsnorm(Space(), x, w, b, {}, workspace);
  CHECK(same_bits(a, b));
  CHECK(workspace.used() == 0);
}

TEST_CASE("rmsnorm refuses what does not fit, and writes nothing") {
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4);
  auto const w = view_of<float>(ones(4), 4), short_w = view_of<float>(ones(3), 3);
  auto const y = view_of_nans<float>(3, 4), narrow_y = view_of_nans<float>(3, 3);
  CHECK(contains(error_of([&] { rmsnorm(Space(), x, short_w, y); }), "has 3 entries, but rows have 4 columns"));
  CHECK(contains(error_of([&] { rmsnorm(Space(), x, w, narrow_y); }), "[3, 3] does not match"));
  CHECK(contains(error_of([&] { rmsnorm(Space(), x, w, y, {.epsilon = -1}); }), "epsilon"));
  CHECK(contains(error_of([&] { rmsnorm(Space(), x, w, y, {.epsilon = NAN}); }), "epsilon"));
  CHECK(contains(error_of([&] { rmsnorm(Space(), x, w, y, {.epsilon = 1e300}); }), "epsilon"));  // infinite in float
  CHECK(contains(error_of([&] { rmsnorm(Space(), x, w, y, {.weight = kfuse::NormWeight(7)}); }),
                 "kfuse::rmsnorm: options.weight: there is none with the number 7"));
  CHECK(contains(error_of([&] { rmsnorm(Space(), x, w, y, {.casting = kfuse::NormCasting(-1)}); }),
                 "kfuse::rmsnorm: options.casting: there is none with the number -1"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

// CASES P45
TEST_CASE("rmsnorm moves its arguments once") {
  using Matrix = kfuse::Tensor<fp16, 2>;
  Matrix const x{nullptr, {4096, 4096}, {4096, 1}};
  kfuse::Tensor<fp16, 1> const w{nullptr, {4096}, {1}};
  auto const traffic = kfuse::rmsnorm_traffic(Space(), x, w, x);
  CHECK(traffic.bytes() == 67117056);
  CHECK(traffic.bytes_written == 33554432);
}

}  // namespace
