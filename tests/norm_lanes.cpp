// SPDX-License-Identifier: Apache-2.0
// Norms with shapes and options of their own, and batch normalisation, on lane groups of 32 and of 64.
#include <kfuse/fused/add_rmsnorm.hpp>
#include <kfuse/fused/batchnorm.hpp>
#include <kfuse/fused/fold_batchnorm.hpp>
#include <kfuse/fused/qk_rmsnorm.hpp>
#include <kfuse/fused/residual_layernorm_dropout.hpp>

#include <doctest/doctest.h>

#include <vector>

#include "operator_lanes.hpp"

namespace {

using kfuse::bf16;
using kfuse::Tensor;
using namespace kfuse::test;

// Rows as [rows, n, columns].
template <class T>
Tensor<typename T::value_type, 3> parts(T const& t, int n) {
  return {t.data, {t.extent(0), n, t.extent(1) / n}, {t.stride(0), t.extent(1) / n, 1}};
}

TEST_CASE_TEMPLATE("norms with shapes and options of their own are right on lanes", On, On<32, float>, On<64, bf16>) {
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
  // Without dropout, which drops by row: a row alone would be the first.
  int const long_row = sizeof(typename On::Element) == 2 ? 33000 : 17000;
  check<On>("residual_layernorm_dropout", {1, 33, 56, 512, 1000, 4096, long_row}, [](auto& a) {
    residual_layernorm_dropout(a.space, a.in('x'), a.in('r'), a.weight('w'), a.weight('b'), a.out('y'),
                               {.x_bias = a.weight('c'), .sum = a.out('s')}, a.workspace);
  });
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
