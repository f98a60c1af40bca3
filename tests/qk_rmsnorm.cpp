// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/qk_rmsnorm.hpp>

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
using kfuse::qk_rmsnorm;
using kfuse::Tensor;
using namespace kfuse::test;

// The definition, for x of [tokens, heads, head_dim]: each head is normed, by the weights of Q or of K.
std::vector<double> reference(std::vector<double> const& x, int heads, int q_heads, std::vector<double> const& q_weight,
                              std::vector<double> const& k_weight, double epsilon) {
  std::size_t const dim = q_weight.size();
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row < x.size() / dim; ++row) {
    auto const& weight = int(row % std::size_t(heads)) < q_heads ? q_weight : k_weight;
    double squares = 0;
    for (std::size_t d = 0; d < dim; ++d) squares += x[row * dim + d] * x[row * dim + d];
    double const root = std::sqrt(squares / double(dim) + epsilon);
    if (root == 0) continue;  // zeros stay zeros
    for (std::size_t d = 0; d < dim; ++d) y[row * dim + d] = x[row * dim + d] / root * weight[d];
  }
  return y;
}

// The rows of a matrix as [tokens, heads, head_dim], with `head_stride` elements from head to head.
template <class View>
auto as_heads(View const& matrix, int heads, int head_dim, int head_stride) {
  return Tensor<typename View::value_type, 3>{
      matrix.data(), {int(matrix.extent(0)), heads, head_dim}, {std::ptrdiff_t(matrix.stride(0)), head_stride, 1}};
}

// Constant heads show every digit that a sum of squares loses.
TEST_CASE("qk_rmsnorm is as exact as its result where x has fewer bits") {
  int const dim = 65536;
  std::vector<double> const one(dim, 1);
  auto const weight = view_of<bf16>(one, dim);
  for (double const value : {1.37, 1.63, 1.9}) {
    auto const x = rounded<bf16>(std::vector<double>(dim, value));
    auto const in = view_of<bf16>(x, 1, dim);
    auto const y = view_of_nans<float>(1, dim);
    qk_rmsnorm(Space(), as_heads(in, 1, dim, dim), 1, weight, weight, as_heads(y, 1, dim, dim));
    CHECK(disagreement<float>(download(y), reference(x, 1, 1, one, one, 1e-6), dim) == "");
  }
}

TEST_CASE("qk_rmsnorm is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("qk_rmsnorm", {.power = 2}, [&]<class Element>(RandomCase& c) {
    // Rows of a case are tokens, its columns the heads of one.
    int const heads = 1 + int(c.seed % 7), dim = std::max(1, c.columns / heads),
              q_heads = int(c.seed / 7 % (heads + 1));
    int const columns = heads * dim;
    auto const x = c.values<Element>(0, std::size_t(c.rows) * columns);
    auto const q = random_values<Element>(dim, c.seed), k = random_values<Element>(dim, c.seed + 1);
    auto const q_weight = view_of<Element>(q, dim), k_weight = view_of<Element>(k, dim);
    GuardedMatrix<Element> const in(c.rows, columns, x, c.place(0)), y(c.rows, columns, c.place(1));
    auto const options = draw_norm_options<kfuse::RmsNormOptions>(c);
    qk_rmsnorm(space, as_heads(in.const_view(), heads, dim, dim), q_heads, q_weight, k_weight,
               as_heads(y.view(), heads, dim, dim), options);
    // Each head is a row of its own: compared as one.
    std::vector<double> const one(dim, 1);
    std::vector<double> weights;  // of a token
    for (int h = 0; h < heads; ++h) {
      auto const& of_head = h < q_heads ? q : k;
      weights.insert(weights.end(), of_head.begin(), of_head.end());
    }
    auto const normed = reference(x, heads, q_heads, one, one, options.epsilon);
    auto const expected = weighed<Element>(normed, weights, options, y.values());
    auto const fault = disagreement<Element>(y.values(), expected, dim);
    c.expect(fault.empty(), "y" + fault);
    c.expect(rounded_right<Element>(y.values(), expected), "y is rounded elsewhere, or twice");
    c.expect(y.guards_intact(), "y: something is written beyond its rows");
    c.unchanged("x", in, x);
    c.same_bits("y", [&](int first, int count) {
      auto const part = view_of_nans<Element>(count, columns);
      qk_rmsnorm(space, as_heads(rows_of(in, first, count), heads, dim, dim), q_heads, q_weight, k_weight,
                 as_heads(part, heads, dim, dim), options);
      return elements(part);
    });
  });
}

// CASES P07a: in place, in rows [ Q | K | V ] of 16 + 8 + 8 heads.
TEST_CASE_TEMPLATE("qk_rmsnorm in packed rows has the bits of a packed copy and leaves V alone", Element, float, bf16) {
  int const tokens = 1024, q_heads = 16, heads = 24, dim = 128, columns = heads * dim, packed = 32 * dim;
  auto const all = random_values<Element>(std::size_t(tokens) * packed, 1);
  std::vector<double> part;
  for (int t = 0; t < tokens; ++t)
    part.insert(part.end(), all.begin() + t * packed, all.begin() + t * packed + columns);
  auto const q = view_of<Element>(random_values<Element>(dim, 2), dim);
  auto const k = view_of<Element>(random_values<Element>(dim, 3), dim);
  auto const buffer = view_of<Element>(all, tokens, packed), copy = view_of<Element>(part, tokens, columns);
  auto const expected = view_of_nans<Element>(tokens, columns);
  qk_rmsnorm(Space(), as_heads(copy, heads, dim, dim), q_heads, q, k, as_heads(expected, heads, dim, dim));
  auto const in_place = as_heads(buffer, heads, dim, dim);
  qk_rmsnorm(Space(), in_place, q_heads, q, k, in_place);
  auto const now = download(buffer), want = download(expected);
  std::size_t differ = 0;
  for (int t = 0; t < tokens; ++t)
    for (int c = 0; c < packed; ++c)
      differ += now[t * packed + c] != (c < columns ? want[t * columns + c] : all[t * packed + c]);
  CHECK(differ == 0);
}

// Heads that lie as [heads, 3, head_dim] in each token's row, of which Q and K are two: GPT-NeoX packs them so.
TEST_CASE("qk_rmsnorm takes heads with a gap, in place, and heads of tokens with gaps of their own elsewhere") {
  int const tokens = 5, heads = 4, dim = 32, gap = 2 * dim;
  for (int const end : {0, 8}) {  // of each token
    CAPTURE(end);
    int const packed = heads * (dim + gap) + end;
    auto const all = random_values<float>(tokens * packed, 1);
    std::vector<double> part;
    for (int t = 0; t < tokens; ++t)
      for (int h = 0; h < heads; ++h) {
        auto const first = all.begin() + t * packed + h * (dim + gap);
        part.insert(part.end(), first, first + dim);
      }
    auto const w = random_values<float>(dim, 2), v = random_values<float>(dim, 3);
    auto const q = view_of<float>(w, dim), k = view_of<float>(v, dim);
    auto const buffer = view_of<float>(all, tokens, packed), y = view_of_nans<float>(tokens, heads * dim);
    auto const gapped = as_heads(buffer, heads, dim, dim + gap);
    qk_rmsnorm(Space(), gapped, 3, q, k, as_heads(y, heads, dim, dim));
    CHECK(deviation(download(y), reference(part, heads, 3, w, v, 1e-6)) <= 1e-6);
    CHECK(kfuse::qk_rmsnorm_traffic(Space(), gapped, 3, q, k, as_heads(y, heads, dim, dim)).bytes() ==
          4 * (2 * tokens * heads * dim + 2 * dim));
    if (end > 0) {
      CHECK(contains(error_of([&] { qk_rmsnorm(Space(), gapped, 3, q, k, gapped); }),
                     "kfuse::qk_rmsnorm: y: overlaps x"));
      continue;
    }
    qk_rmsnorm(Space(), gapped, 3, q, k, gapped);
    auto const now = download(buffer), want = download(y);
    std::size_t differ = 0;
    for (int i = 0; i < tokens * packed; ++i) {
      int const c = i % packed, inside = c % (dim + gap), head = c / (dim + gap);
      differ += now[i] != (inside < dim ? want[(i / packed * heads + head) * dim + inside] : all[i]);
    }
    CHECK(differ == 0);
  }
}

TEST_CASE("qk_rmsnorm adds one to weights (Gemma 3), and rounds before them, if asked for") {
  int const tokens = 3, heads = 3, dim = 64;
  auto const x = random_values<bf16>(tokens * heads * dim, 1);
  auto q = random_values<bf16>(dim, 2), k = random_values<bf16>(dim, 3);
  auto const in = view_of<bf16>(x, tokens, heads, dim);
  auto const q_weight = view_of<bf16>(q, dim), k_weight = view_of<bf16>(k, dim);
  auto const y = view_of_nans<float>(tokens, heads, dim), llama = view_of_nans<float>(tokens, heads, dim);
  qk_rmsnorm(Space(), in, 2, q_weight, k_weight, y, {.weight = NormWeight::one_plus});
  qk_rmsnorm(Space(), in, 2, q_weight, k_weight, llama,
             {.weight = NormWeight::one_plus, .casting = NormCasting::llama});
  for (double& v : q) v += 1;
  for (double& v : k) v += 1;
  auto const expected = reference(x, heads, 2, q, k, 1e-6);
  CHECK(deviation(download(y), expected) <= 1e-6);
  CHECK(deviation(download(llama), expected) <= tolerance<bf16>());
  CHECK(deviation(download(llama), expected) >= 1e-3);
}

TEST_CASE("qk_rmsnorm with a workspace has the same bits") {
  int const dim = 70001;
  auto const x = view_of<float>(random_values<float>(2 * dim, 1), 1, 2, dim);
  auto const q = view_of<float>(random_values<float>(dim, 2), dim),
             k = view_of<float>(random_values<float>(dim, 3), dim);
  auto const a = view_of_nans<float>(1, 2, dim), b = view_of_nans<float>(1, 2, dim);
  kfuse::Workspace<Space> workspace(1 << 20);
  workspace.poison(Space());
  qk_rmsnorm(Space(), x, 1, q, k, a);
  qk_rmsnorm(Space(), x, 1, q, k, b, {}, workspace);
  CHECK(same_bits(a, b));
}

// CASES P09
TEST_CASE("qk_rmsnorm of no tokens, no heads and no columns writes nothing") {
  auto const q = view_of<float>({1, 1}, 2), none = view_of_nans<float>(0);
  qk_rmsnorm(Space(), view_of_nans<float>(0, 3, 2), 1, q, q, view_of_nans<float>(0, 3, 2));
  qk_rmsnorm(Space(), view_of_nans<float>(3, 0, 2), 0, q, q, view_of_nans<float>(3, 0, 2));
  qk_rmsnorm(Space(), view_of_nans<float>(3, 2, 0), 1, none, none, view_of_nans<float>(3, 2, 0));
}

TEST_CASE("qk_rmsnorm refuses what does not fit, and writes nothing") {
  auto const x = view_of<float>(random_values<float>(24, 1), 2, 3, 4);
  auto const w = view_of<float>({1, 1, 1, 1}, 4), few = view_of<float>({1, 1, 1}, 3);
  auto const y = view_of_nans<float>(2, 3, 4), other = view_of_nans<float>(3, 2, 4);
  auto const error = [&](auto const& q, auto const& k, auto const& out, int q_heads, double epsilon = 1e-6) {
    return error_of([&] { qk_rmsnorm(Space(), x, q_heads, q, k, out, {.epsilon = epsilon}); });
  };
  CHECK(contains(error(few, w, y, 2), "kfuse::qk_rmsnorm: q_weight: has 3 entries, but rows have 4 columns"));
  CHECK(contains(error(w, few, y, 2), "kfuse::qk_rmsnorm: k_weight: has 3 entries, but rows have 4 columns"));
  CHECK(contains(error(w, w, other, 2), "kfuse::qk_rmsnorm: y: shape [3, 2, 4] is not that of x, [2, 3, 4]"));
  CHECK(contains(error(w, w, y, 4), "4 of 3 heads cannot be heads of Q"));
  CHECK(contains(error(w, w, y, -1), "kfuse::qk_rmsnorm: q_heads"));
  CHECK(contains(error(w, w, y, 2, -1), "epsilon"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

// CASES P05: rows beyond 2^31, which are counted without a division.
TEST_CASE("the rows of a batch are found at any distance") {
  for (int const rows : {1, 2, 3, 7, 1000, 65535, 65536, 2147483647})
    for (std::ptrdiff_t const batch : {0, 1, 2, 1000, 2147483646})
      for (int const row : {0, 1, rows / 2, rows - 1}) {
        if (row >= rows) continue;
        auto const found = kfuse::impl::BatchRows(rows).of(batch * rows + row);
        CHECK(found.batch == batch);
        CHECK(found.row == row);
      }
}

}  // namespace
