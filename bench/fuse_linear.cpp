// SPDX-License-Identifier: Apache-2.0
// Projections between chains: one on its own, and the four of a decode layer with all that stands between them but
// attention.
#include <kfuse/fused/fuse_linear.hpp>
#include <kfuse/fused/rmsnorm.hpp>
#include <kfuse/fused/stage/gate.hpp>
#include <kfuse/fused/stage/norm.hpp>
#include <kfuse/fused/swiglu.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "bench.hpp"

namespace {

constexpr kfuse::FuseLinearOptions constant{.weights = kfuse::WeightsAre::constant};

template <class Space, class W>
std::vector<double> product(std::vector<double> const& x, W const& w) {
  std::vector<double> y(w.extent(0));
  for (int o = 0; o < w.extent(0); ++o) {
    auto const weights = bench::row<Space>(w, o);
    for (std::size_t k = 0; k < x.size(); ++k) y[o] += x[k] * weights[k];
  }
  return y;
}

std::string path_of(int rows) {
  bool const few =
      kfuse::impl::fuse_linear_path(rows, kfuse::WeightLayout::out_in, true) == kfuse::FuseLinearPath::few_rows;
  return few ? "few rows" : "library";
}

struct Projection {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const rows = sizes["rows"], in = sizes["in"], out = sizes["out"];
    double const size = 1.7 / std::sqrt(double(in));  // so that results are about as large as x
    auto const x = bench::random<Element>(memory, -1, 1, rows, in);
    auto const w = bench::random<Element>(memory, -size, size, out, in);
    auto const y = bench::empty<Element>(memory, rows, out);
    bench::Output checked =
        bench::output("y", y, [=](std::ptrdiff_t row) { return product<Space>(bench::row<Space>(x, row), w); });
    checked.floor = 1;
    checked.rows_checked = 2;
    return {.fused =
                [=](bench::Context<Space> const& on) {
                  kfuse::fuse_linear(on.space, on.blas, on.workspace, "kfuse::fuse_linear", kfuse::load(x), w,
                                     kfuse::store(y), constant);
                },
            .eager = [=](bench::Context<Space> const& on) { kfuse::linear(on.space, on.blas, x, w, y); },
            .outputs = {checked},
            .path = path_of(rows)};
  }
};

// Of a Llama layer, with attention left out: it is given the queries' columns of qkv.
struct DecodeProducts {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    using namespace kfuse;
    int const rows = sizes["rows"], hidden = sizes["hidden"], inner = sizes["inner"], all = sizes["qkv"];
    if (all < hidden) throw bench::UsageError("--qkv: has fewer columns than --hidden, which the queries take");
    auto const weights = [&](int out, int in) {
      double const size = 1.7 / std::sqrt(double(in));
      return bench::random<Element>(memory, -size, size, out, in);
    };
    auto const x = bench::random<Element>(memory, -1, 1, rows, hidden);
    auto const norm1 = bench::random<Element>(memory, 0.5, 1.5, hidden);
    auto const norm2 = bench::random<Element>(memory, 0.5, 1.5, hidden);
    auto const w_qkv = weights(all, hidden), w_out = weights(hidden, hidden);
    auto const w_up = weights(sizes.product({"inner"}, 2), hidden), w_down = weights(hidden, inner);
    auto const normed = bench::empty<Element>(memory, rows, hidden), qkv = bench::empty<Element>(memory, rows, all);
    auto const sum = bench::empty<Element>(memory, rows, hidden), y = bench::empty<Element>(memory, rows, hidden);
    auto const gate_up = bench::empty<Element>(memory, rows, 2 * inner);
    auto const gated = bench::empty<Element>(memory, rows, inner);
    auto const mixed = columns(qkv, 0, hidden);

    auto const norm = [=](std::vector<double> values, auto const& weight) {
      auto const w = bench::row<Space>(weight);
      double squares = 0;
      for (double const v : values) squares += v * v;
      for (int c = 0; c < hidden; ++c) values[c] *= w[c] / std::sqrt(squares / hidden + 1e-6);
      return values;
    };
    auto const plus = [](std::vector<double> a, std::vector<double> const& b) {
      for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
      return a;
    };
    auto const by_definition = [=](std::ptrdiff_t r) {
      auto const input = bench::row<Space>(x, r);
      auto attended = product<Space>(norm(input, norm1), w_qkv);
      attended.resize(hidden);
      auto const middle = plus(product<Space>(attended, w_out), input);
      auto const both = product<Space>(norm(middle, norm2), w_up);
      std::vector<double> values(inner);
      for (int c = 0; c < inner; ++c) values[c] = both[c] / (1 + std::exp(-both[c])) * both[inner + c];
      return plus(product<Space>(values, w_down), middle);
    };
    bench::Output checked = bench::output("y", y, by_definition, 8);  // each of five steps rounds what it stores
    checked.floor = 1;
    checked.rows_checked = 1;
    return {.fused =
                [=](bench::Context<Space> const& on) {
                  auto const run = [&](char const* label, auto const& before, auto const& w, auto const& after) {
                    fuse_linear(on.space, on.blas, on.workspace, label, before, w, after, constant);
                  };
                  run("kfuse::qkv", load(x) | rmsnorm(norm1), w_qkv, store(qkv));
                  run("kfuse::out", load(mixed), w_out, add(x) | store(sum));
                  run("kfuse::up", load(sum) | rmsnorm(norm2), w_up, gate<Activation::silu>() | store(gated));
                  run("kfuse::down", load(gated), w_down, add(sum) | store(y));
                },
            .eager =
                [=](bench::Context<Space> const& on) {
                  kfuse::rmsnorm(on.space, x, norm1, normed, {}, on.workspace);
                  linear(on.space, on.blas, normed, w_qkv, qkv);
                  linear(on.space, on.blas, mixed, w_out, sum, {.residual = x});
                  kfuse::rmsnorm(on.space, sum, norm2, normed, {}, on.workspace);
                  linear(on.space, on.blas, normed, w_up, gate_up);
                  swiglu(on.space, gate_up, gated);
                  linear(on.space, on.blas, gated, w_down, y, {.residual = sum});
                },
            .outputs = {checked},
            .path = path_of(rows)};
  }
};

bench::Register<Projection> const projection(
    "fuse_linear", "y = x w^T, of few rows", {{"rows", 1}, {"in", 4096}, {"out", 4096}},
    {{.sizes = {{"rows", 1}}, .at_least = 0.948, .calls = 16, .of_copy = true}});
bench::Register<DecodeProducts> const products(
    "decode_products", "a Llama layer's norms, projections, gate and residuals, without attention",
    {{"rows", 1}, {"hidden", 4096}, {"qkv", 6144}, {"inner", 14336}},
    {{.sizes = {{"rows", 1}}, .at_least = 0.97, .calls = 4, .of_copy = true},
     {.sizes = {{"rows", 1}, {"hidden", 2048}, {"qkv", 3072}, {"inner", 8192}},
      .at_least = 0.82,
      .calls = 8,
      .of_copy = true}});

}  // namespace
