// SPDX-License-Identifier: Apache-2.0
// Row operators that reduce nothing, and operators with shapes of their own, on lane groups of 32 and of 64.
#include "operator_lanes.hpp"

#include <kfuse/fused/add_multiply_relu.hpp>
#include <kfuse/fused/bias_activation.hpp>
#include <kfuse/fused/bias_activation_dropout_residual.hpp>
#include <kfuse/fused/dropout.hpp>
#include <kfuse/fused/embedding.hpp>
#include <kfuse/fused/geglu.hpp>
#include <kfuse/fused/linear.hpp>
#include <kfuse/fused/matmul.hpp>
#include <kfuse/fused/reglu.hpp>
#include <kfuse/fused/rope.hpp>
#include <kfuse/fused/rope_qkv.hpp>
#include <kfuse/fused/swiglu.hpp>

#include <doctest/doctest.h>

#include <type_traits>
#include <vector>

namespace {

using kfuse::bf16;
using kfuse::Tensor;
using kfuse::impl::as_batch;
using namespace kfuse::test;

// Each line is an operator. `a` makes its arguments.
TEST_CASE_TEMPLATE("row operators that reduce nothing are right on lanes", On, On<32, float>, On<64, bf16>,
                   On<64, double>) {
  using namespace kfuse;
  std::vector<int> const widths{1, 33, 64, 1000, 8200};
  auto const is_right = [&](char const* name, auto const& run, KnowsRow knows_row = KnowsRow::no) {
    check<On>(name, widths, run, knows_row);
  };
  is_right("bias_activation",
           [](auto& a) { bias_activation(a.space, a.in('x'), a.weight('b'), a.out('y'), Activation::gelu_tanh); });
  is_right("bias_activation with a mask", [](auto& a) {
    bias_activation(a.space, a.in('x'), a.weight('b'), a.mask('m'), a.out('y'), Activation::gelu);
  });
  is_right(
      "bias_activation_dropout_residual",
      [](auto& a) {
        bias_activation_dropout_residual(a.space, a.in('x'), a.weight('b'), a.in('r'), a.out('y'),
                                         {.activation = Activation::gelu_quick, .dropout = 0.3, .random = {5, 1}});
      },
      KnowsRow::yes);
  is_right("add_multiply_relu",
           [](auto& a) { add_multiply_relu(a.space, a.in('x'), a.in('a'), a.in('f'), a.out('y')); });
  is_right(
      "dropout",
      [](auto& a) {
        dropout(a.space, a.in('x'), a.out('y'), {.p = 0.3, .random = {5, 1}});
      },
      KnowsRow::yes);
  is_right("swiglu", [](auto& a) { swiglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
  is_right("swiglu of two", [](auto& a) { swiglu(a.space, a.in('g'), a.in('u'), a.out('y')); });
  is_right("swiglu, interleaved",
           [](auto& a) { swiglu(a.space, a.in('x', 2 * a.columns), a.out('y'), {.layout = GateLayout::interleaved}); });
  is_right("geglu", [](auto& a) { geglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
  is_right("reglu", [](auto& a) { reglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
  is_right("embedding", [](auto& a) {
    embedding(a.space, a.table('t', 50, a.columns), a.indices('i', 50), a.table('u', 9, a.columns), a.indices('j', 9),
              a.out('y'));
  });
}

// Heads of Q, K and V, a sequence to each row, and a cache of five places.
template <class A, class Element = typename A::Element>
Tensor<Element, 4> cache(A& a, char name, int heads, int head_dim) {
  auto const t = a.out(name, heads * 5 * head_dim);
  return {t.data, {a.rows, heads, 5, head_dim}, {t.stride(0), 5 * head_dim, head_dim, 1}};
}
TEST_CASE_TEMPLATE("operators with shapes of their own are right on lanes", On, On<32, float>, On<64, bf16>,
                   On<64, double>) {
  using namespace kfuse;
  check<On>("rope_qkv", {4, 20, 32}, [](auto& a) {
    int const dim = 2 * a.columns;
    rope_qkv(a.space, a.in('x', 8 * dim), a.table('t', 5, dim), a.indices('p', 5), a.out('q', 4 * dim),
             cache(a, 'k', 2, dim), cache(a, 'v', 2, dim));
  });
  for (auto const pairs : {RopePairs::half, RopePairs::interleaved})
    check<On>("rope", {4, 20, 32}, [pairs](auto& a) {
      auto const heads = [&](auto const& t, int n) {
        return Tensor<typename std::remove_cvref_t<decltype(t)>::value_type, 3>{
            t.data, {t.extent(0), n, 2 * a.columns}, {t.stride(0), 2 * a.columns, 1}};
      };
      int const dim = 2 * a.columns;
      rope(a.space, heads(a.in('x', 4 * dim), 4), heads(a.in('z', 2 * dim), 2), a.table('t', 5, dim - 2),
           a.indices('p', 5), heads(a.out('q', 4 * dim), 4), heads(a.out('k', 2 * dim), 2),
           {.rotary_dim = dim - 2, .pairs = pairs});
    });
  check<On>("matmul", {1, 33, 130}, [](auto& a) {
    Blas<std::remove_const_t<decltype(a.space)>> blas(a.space);
    matmul(a.space, blas, as_batch(a.in('a', 70)), as_batch(a.table('b', 70, a.columns)), as_batch(a.out('c')));
  });
  check<On>("linear", {1, 33, 130}, [](auto& a) {
    Blas<std::remove_const_t<decltype(a.space)>> blas(a.space);
    linear(a.space, blas, a.in('x', 70), a.table('w', a.columns, 70), a.out('y'),
           {.bias = a.weight('b'), .residual = a.in('r'), .activation = Activation::silu});
  });
}

}  // namespace
