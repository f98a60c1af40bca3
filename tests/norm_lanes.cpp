// SPDX-License-Identifier: Apache-2.0
// Norms with shapes and options of their own, and batch normalisation, on lane groups of 32 and of 64.
#include <kfuse/fused/add_rmsnorm.hpp>
#include <kfuse/fused/batchnorm.hpp>
#include <kfuse/fused/fold_batchnorm.hpp>
#include <kfuse/fused/layernorm.hpp>
#include <kfuse/fused/qk_rmsnorm.hpp>
#include <kfuse/fused/residual_layernorm_dropout.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "operator_lanes.hpp"

namespace {

using kfuse::bf16;
using kfuse::fp16;
using kfuse::Tensor;
using namespace kfuse::test;

// Rows as [rows, n, columns].
template <class T>
Tensor<typename T::value_type, 3> parts(T const& t, int n) {
  return {t.data, {t.extent(0), n, t.extent(1) / n}, {t.stride(0), t.extent(1) / n, 1}};
}

TEST_CASE_TEMPLATE("norms with shapes and options of their own are right on lanes", On, On<32, float>, On<64, bf16>,
                   On<32, double>) {
  using namespace kfuse;
  check<On>("qk_rmsnorm", {1, 33, 64, 128, 1000}, [](auto& a) {
    int const heads = 3, all = heads * a.columns;
    qk_rmsnorm(a.space, parts(a.in('x', all), heads), 2, a.weight('q'), a.weight('k'), parts(a.out('y', all), heads),
               {}, a.workspace);
  });
  check<On>("add_rmsnorm, one-plus", {33, 64, 4096}, [](auto& a) {
    add_rmsnorm(a.space, a.in('x'), a.in('r'), a.weight('w'), a.out('s'), a.out('y'), {.weight = NormWeight::one_plus},
                a.workspace);
  });
  // What is dropped depends on the row's number, and a row alone is the first.
  int const long_row = 66000 / int(sizeof(typename On::Element)) + 1000;
  for (double const p : {0.0, 0.3})
    check<On>(
        "residual_layernorm_dropout", {1, 33, 56, 512, 1000, 4096, long_row},
        [=](auto& a) {
          residual_layernorm_dropout(a.space, a.in('x'), a.in('r'), a.weight('w'), a.weight('b'), a.out('y'),
                                     {.x_bias = a.weight('c'), .sum = a.out('s'), .dropout = p, .random = {5, 1}},
                                     a.workspace);
        },
        p == 0 ? KnowsRow::no : KnowsRow::yes);
}

// CASES P01. Parts of a lane group to a row, teams, and passes; layouts in which lanes have unequal numbers of packs.
TEST_CASE_TEMPLATE("layernorm of a constant row is the bias on lanes", On, On<32, double>, On<32, float>, On<64, bf16>,
                   On<32, fp16>) {
  using Element = typename On::Element;
  double const all_digits = 2 - std::ldexp(1, -Format<Element>::mantissa);
  for (int const columns : {33, 1000, 12344, 12345, 16383, 69999})
    for (double const value : {all_digits, -1024 * all_digits}) {
      CAPTURE(columns);
      CAPTURE(value);
      auto const filled = [&](double v) { return std::vector<Element>(columns, encode<Element>(v)); };
      auto x = filled(value), weight = filled(1), bias = filled(0);
      auto const row = kfuse::make_tensor(x.data(), 1, columns);
      kfuse::layernorm(typename On::Space(), row, kfuse::make_tensor(weight.data(), columns),
                       kfuse::make_tensor(bias.data(), columns), row, {.epsilon = 0});
      CHECK(std::ranges::count_if(x, [](Element y) { return decode(y) != 0; }) == 0);
    }
}

// Their epsilon exceeds what is negative among the values that stand for variances.
TEST_CASE_TEMPLATE("batch normalisation is right on lanes", On, On<32, float>, On<64, bf16>, On<64, double>) {
  using namespace kfuse;
  check<On>("batchnorm", {1, 33, 64, 1000, 8200}, [](auto& a) {
    batchnorm(a.space, a.in('x'), a.weight('m'), a.weight('v'), a.weight('w'), a.weight('b'), a.out('y'),
              {.epsilon = 3, .activation = Activation::relu});
  });
  check<On>("batchnorm, NCHW", {1, 33, 64, 1000}, [](auto& a) {
    int const channels = 3, all = channels * a.columns;
    auto const parameter = [&](char name) { return make_tensor(a.table(name, 1, channels).data, channels); };
    batchnorm(a.space, parts(a.in('x', all), channels), parameter('m'), parameter('v'), parameter('w'), parameter('b'),
              parts(a.out('y', all), channels), {.epsilon = 3});
  });
  check<On>("fold_batchnorm", {1, 33, 64, 1000}, [](auto& a) {
    // A row's own column is its parameter: the same wherever the row stands.
    auto const parameter = [&](char name) {
      auto const column = a.in(name, 1);
      auto const packed = a.workspace.template take<typename On::Element>("parameters", a.rows);
      for (int r = 0; r < a.rows; ++r) packed(r) = column(r, 0);
      return packed;
    };
    auto const bias = parameter('c');
    fold_batchnorm(a.space, a.in('x'), bias, parameter('m'), parameter('v'), parameter('w'), parameter('b'), a.out('y'),
                   bias, 3);
    auto const out = a.out('z', 1);
    for (int r = 0; r < a.rows; ++r) out(r, 0) = bias(r);
  });
}

}  // namespace
