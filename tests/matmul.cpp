// SPDX-License-Identifier: Apache-2.0
#include <kfuse/core/replay.hpp>
#include <kfuse/fused/matmul.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::as_tensor;
using kfuse::bf16;
using kfuse::Blas;
using kfuse::fp16;
using kfuse::Ledger;
using kfuse::make_tensor;
using kfuse::matmul;
using kfuse::MatmulOptions;
using kfuse::Tensor;
using kfuse::Transpose;
using namespace kfuse::test;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Values of a batch of matrices, and where they lie in a buffer: element (i, r, c) is number
// first + i * batch_stride + r * row_stride + c of it.
struct Batch {
  int batch, rows, columns;
  std::ptrdiff_t first, batch_stride, row_stride;
  std::size_t buffer;  // elements

  static Batch packed(int batch, int rows, int columns) {
    return {batch, rows, columns, 0, std::ptrdiff_t(rows) * columns, columns, std::size_t(batch) * rows * columns};
  }
  // Rows with a gap after each, and some more after each matrix.
  static Batch spread(int batch, int rows, int columns, int shift, int gap) {
    std::ptrdiff_t const matrix = std::ptrdiff_t(rows) * (columns + gap) + 2 * gap;
    return {batch, rows, columns, shift, matrix, columns + gap, std::size_t(shift + batch * matrix)};
  }
  // As attention's heads lie in [tokens, heads, head_dim].
  static Batch interleaved(int batch, int rows, int columns) {
    return {batch, rows, columns, 0, columns, std::ptrdiff_t(batch) * columns, std::size_t(batch) * rows * columns};
  }
  // One matrix for all.
  static Batch shared(int batch, int rows, int columns) {
    return {batch, rows, columns, 0, 0, columns, std::size_t(rows) * columns};
  }

  std::size_t at(int i, int r, int c) const { return std::size_t(first + i * batch_stride + r * row_stride + c); }
  template <class Element>
  Tensor<Element, 3> tensor(Kokkos::View<Element*, Kokkos::LayoutRight, Space> const& view) const {
    return {view.data() + first, {batch, rows, columns}, {batch_stride, row_stride, 1}};
  }
};

// c = alpha a b in `element type`, held against the definition: the largest error relative to the sums of magnitudes.
// What lies between the rows of c must stay as it was.
template <class Element>
double error_of_product(Space const& space, Blas<Space>& blas, Batch const& a, Batch const& b, Batch const& c,
                        MatmulOptions const& options) {
  auto const x = random_values<Element>(a.buffer, 1, -1, 1), w = random_values<Element>(b.buffer, 2, -1, 1);
  auto const left = view_of<Element>(x, a.buffer), right = view_of<Element>(w, b.buffer);
  auto const out = view_of_nans<Element>(c.buffer);
  matmul(space, blas, a.tensor(left), b.tensor(right), c.tensor(out), options);

  auto y = download(out);
  double largest = 0;
  for (int i = 0; i < c.batch; ++i)
    for (int r = 0; r < c.rows; ++r)
      for (int n = 0; n < c.columns; ++n) {
        double sum = 0, magnitude = 1e-30;
        for (int k = 0; k < a.columns; ++k) {
          double const term =
              options.alpha * x[a.at(i, r, k)] * (options.b == Transpose::yes ? w[b.at(i, n, k)] : w[b.at(i, k, n)]);
          sum += term;
          magnitude += std::abs(term);
        }
        double const error = std::abs(y[c.at(i, r, n)] - sum) / magnitude;
        if (!(error <= largest)) largest = error;
        y[c.at(i, r, n)] = nan;
      }
  CHECK(std::all_of(y.begin(), y.end(), [](double v) { return std::isnan(v); }));
  return largest;
}

TEST_CASE_TEMPLATE("any batch, size, stride and alpha agrees with the definition", Element, double, float, bf16, fp16) {
  Space const space = another_instance();
  Blas<Space> blas(space);
  struct Sizes {
    int batch, m, n, k;
  };
  for (auto const [batch, m, n, k] : {Sizes{1, 1, 1, 1}, Sizes{3, 5, 7, 9}, Sizes{2, 8, 16, 32}, Sizes{4, 1, 33, 64},
                                      Sizes{2, 65, 1, 17}, Sizes{5, 33, 130, 24}, Sizes{1, 128, 64, 131}})
    for (Transpose const transpose : {Transpose::no, Transpose::yes})
      for (int kind = 0; kind < 4; ++kind) {
        CAPTURE(batch);
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        CAPTURE(int(transpose));
        CAPTURE(kind);
        int const b_rows = transpose == Transpose::yes ? n : k, b_columns = transpose == Transpose::yes ? k : n;
        MatmulOptions const options{.alpha = kind == 0 ? 1 : -0.375, .b = transpose};
        auto const error = [&](Batch const& a, Batch const& b, Batch const& c) {
          return error_of_product<Element>(space, blas, a, b, c, options);
        };
        double e = nan;
        if (kind == 0)
          e = error(Batch::packed(batch, m, k), Batch::packed(batch, b_rows, b_columns), Batch::packed(batch, m, n));
        else if (kind == 1)
          e = error(Batch::spread(batch, m, k, 1, 3), Batch::spread(batch, b_rows, b_columns, 3, 1),
                    Batch::spread(batch, m, n, 2, 5));
        else if (kind == 2)
          e = error(Batch::interleaved(batch, m, k), Batch::interleaved(batch, b_rows, b_columns),
                    Batch::interleaved(batch, m, n));
        else
          e = error(Batch::packed(batch, m, k), Batch::shared(batch, b_rows, b_columns), Batch::packed(batch, m, n));
        CHECK(e <= tolerance<Element>());
      }
}

TEST_CASE_TEMPLATE("whole numbers come out exactly, whatever c held before", Element, double, float, bf16, fp16) {
  Space const space;
  Blas<Space> blas(space);
  for (int const m : {1, 3, 17, 65})
    for (int const n : {1, 8, 33})
      for (int const k : {1, 7, 64}) {
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        // a(i, r, k) = i + 1 and b(i, k, c) = c % 2 + 1, so c(i, r, c) = 2^-1 (i + 1) (c % 2 + 1) k
        auto const a = view_of_nans<Element>(2, m, k), b = view_of_nans<Element>(2, k, n),
                   c = view_of_nans<Element>(2, m, n);
        std::vector<double> x, w, expected;
        for (int i = 0; i < 2; ++i) {
          x.insert(x.end(), std::size_t(m) * k, i + 1);
          for (int e = 0; e < k * n; ++e) w.push_back(e % n % 2 + 1);
          for (int e = 0; e < m * n; ++e) expected.push_back(0.5 * (i + 1) * (e % n % 2 + 1) * k);
        }
        upload(a, x);
        upload(b, w);
        matmul(space, blas, a, b, c, {.alpha = 0.5});
        CHECK(download(c) == expected);
      }
}

TEST_CASE_TEMPLATE("empty products launch nothing, and empty sums are zero", Element, float, bf16) {
  Space const space = another_instance();
  Blas<Space> blas(space);
  auto const null = [](int batch, int rows, int columns) {
    return make_tensor<Element>(nullptr, batch, rows, columns);
  };
  auto const c = view_of_nans<Element>(2, 3, 4);
  {
    Ledger const ledger;
    matmul(space, blas, null(0, 3, 5), null(0, 5, 4), null(0, 3, 4));
    matmul(space, blas, null(2, 0, 5), null(2, 5, 4), null(2, 0, 4));
    matmul(space, blas, null(2, 3, 5), null(2, 5, 0), null(2, 3, 0));
    CHECK(ledger.entries().empty());
  }
  matmul(space, blas, null(2, 3, 0), null(2, 0, 4), c);
  CHECK(download(c) == std::vector<double>(24, 0));
}

TEST_CASE_TEMPLATE("the same call has the same bits again, replayed too", Element, double, float, bf16, fp16) {
  kfuse::Replay<Space> replay;
  Blas<Space> blas(replay.space());
  auto const a = view_of<Element>(random_values<Element>(4 * 33 * 200, 1), 4, 33, 200);
  auto const b = view_of<Element>(random_values<Element>(4 * 65 * 200, 2), 4, 65, 200);
  auto const first = view_of_nans<Element>(4, 33, 65), second = view_of_nans<Element>(4, 33, 65);
  MatmulOptions const options{.alpha = 0.125, .b = Transpose::yes};
  matmul(replay.space(), blas, a, b, first, options);
  matmul(replay.space(), blas, a, b, second, options);
  CHECK(same_bits(first, second));
  replay.record([=, &blas](Space const& space) { matmul(space, blas, a, b, second, options); });
  upload(second, std::vector<double>(4 * 33 * 65, nan));
  replay.run(replay.space());
  CHECK(same_bits(first, second));
}

TEST_CASE("a host space multiplies too, whatever else this build has") {
  using Host = Kokkos::DefaultHostExecutionSpace;
  Blas<Host> blas{Host()};
  Kokkos::View<float***, Kokkos::LayoutRight, Kokkos::HostSpace> const a("a", 2, 3, 5), b("b", 2, 5, 4),
      c("c", 2, 3, 4);
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 5; ++k) {
      for (int r = 0; r < 3; ++r) a(i, r, k) = float(r + 1);
      for (int n = 0; n < 4; ++n) b(i, k, n) = float((i + 1) * (n + 1));
    }
  matmul(Host(), blas, a, b, c);
  for (int i = 0; i < 2; ++i)
    for (int r = 0; r < 3; ++r)
      for (int n = 0; n < 4; ++n) CHECK(c(i, r, n) == float((r + 1) * (i + 1) * (n + 1) * 5));
}

TEST_CASE("what is launched and moved is stated, and a ledger can hold it back") {
  Blas<Space> blas{Space()};
  auto const a = view_of_nans<float>(3, 5, 7), b = view_of_nans<float>(3, 7, 2), c = view_of_nans<float>(3, 5, 2);
  auto const cost = kfuse::matmul_traffic<float>(as_tensor(a), as_tensor(b), as_tensor(c));
  CHECK(cost == kfuse::Traffic{(3 * 5 * 7 + 3 * 7 * 2) * 4, 3 * 5 * 2 * 4, 2 * 3 * 5 * 2 * 7});
  auto shared = as_tensor(b);
  shared.strides[0] = 0;
  CHECK(kfuse::matmul_traffic<float>(as_tensor(a), shared, as_tensor(c)).bytes_read == (3 * 5 * 7 + 7 * 2) * 4);

  upload(a, random_values(105, 1));
  upload(b, random_values(42, 2));
  {
    Ledger const ledger(Ledger::Execution::none);
    matmul(Space(), blas, a, b, c);
    REQUIRE(ledger.entries().size() == 1);
    CHECK(ledger.entries()[0].label == "kfuse::matmul");
    CHECK(ledger.traffic() == cost);
  }
  for (double const v : download(c)) CHECK(std::isnan(v));
}

TEST_CASE("wrong arguments are refused, and c is left alone") {
  Blas<Space> blas{Space()};
  auto const values = random_values(2 * 4 * 4, 1);
  auto const a = view_of<float>(values, 2, 4, 4), b = view_of<float>(values, 2, 4, 4),
             c = view_of<float>(values, 2, 4, 4);
  auto const narrow = view_of_nans<float>(2, 4, 3), single = view_of_nans<float>(1, 4, 4);
  auto const refused = [&](auto const& left, auto const& right, auto const& out, MatmulOptions const& options = {}) {
    return error_of([&] { matmul(Space(), blas, left, right, out, options); });
  };
  CHECK(contains(
      refused(a, narrow, c, {.b = Transpose::yes}),
      "matmul: b: its shape [2, 4, 3], taken as [batch, n, k], does not fit a, which is [2, 4, 4]; is the other "
      "Transpose meant?"));
  CHECK(contains(refused(a, single, c), "matmul: b: its shape [1, 4, 4]"));
  CHECK(contains(refused(a, b, narrow),
                 "matmul: c: its shape is [2, 4, 3], but a [2, 4, 4] and b [2, 4, 4] make [2, 4, 4]"));
  CHECK(contains(refused(a, b, c, {.alpha = nan}), "matmul: alpha: it must be finite"));
  CHECK(contains(refused(c, b, c), "matmul: c: it overlaps a or b"));
  CHECK(contains(refused(a, c, c), "matmul: c: it overlaps a or b"));
  auto const strided = [](auto const& view, std::ptrdiff_t batch_stride, std::ptrdiff_t row_stride) {
    return Tensor<float, 3>{view.data(), {2, 4, 4}, {batch_stride, row_stride, 1}};
  };
  CHECK(contains(refused(a, b, strided(c, 0, 4)), "matmul: c: its matrices overlap"));
  CHECK(contains(refused(a, b, strided(c, 8, 4)), "matmul: c: its matrices overlap"));
  CHECK(contains(refused(a, b, strided(c, 16, 2)), "matmul: c: its rows overlap"));
  CHECK(contains(refused(strided(a, 16, 0), b, c), "matmul: a: its rows overlap"));
  CHECK(contains(refused(strided(a, -16, 4), b, c), "matmul: a: its batch stride is negative"));
  CHECK(download(c) == rounded<float>(values));
  CHECK(refused(a, b, strided(c, 4, 8)).empty());  // row by row in turns
}

}  // namespace
