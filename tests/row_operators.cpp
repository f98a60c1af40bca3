// SPDX-License-Identifier: Apache-2.0
#include "row_operators.hpp"

#include <kfuse/fused/add_layernorm.hpp>
#include <kfuse/fused/add_multiply_relu.hpp>
#include <kfuse/fused/add_rmsnorm.hpp>
#include <kfuse/fused/argmax.hpp>
#include <kfuse/fused/batchnorm.hpp>
#include <kfuse/fused/bias_activation.hpp>
#include <kfuse/fused/bias_activation_dropout_residual.hpp>
#include <kfuse/fused/cross_entropy.hpp>
#include <kfuse/fused/dropout.hpp>
#include <kfuse/fused/embedding.hpp>
#include <kfuse/fused/geglu.hpp>
#include <kfuse/fused/layernorm.hpp>
#include <kfuse/fused/log_softmax.hpp>
#include <kfuse/fused/qk_rmsnorm.hpp>
#include <kfuse/fused/reglu.hpp>
#include <kfuse/fused/residual_layernorm_dropout.hpp>
#include <kfuse/fused/rmsnorm.hpp>
#include <kfuse/fused/rope.hpp>
#include <kfuse/fused/softmax.hpp>
#include <kfuse/fused/swiglu.hpp>
#include <kfuse/fused/top_k.hpp>

#include <algorithm>
#include <functional>
#include <vector>

namespace kfuse::test {

namespace {

// Rows as heads, or channels, side by side.
template <class T>
Tensor<T, 3> heads(Tensor<T, 2> const& t, int count) {
  int const head_dim = t.extent(1) / count;
  return {t.data, {t.extent(0), count, head_dim}, {t.strides[0], head_dim * t.strides[1], t.strides[1]}};
}

}  // namespace

// Each line is an operator. `a` makes its arguments.
std::vector<RowOperator> row_operators() {
  std::vector<RowOperator> all;
  auto const list = [&](char const* name, std::function<void(Arguments&)> const& call) { all.push_back({name, call}); };
  list("rmsnorm", [](Arguments& a) { rmsnorm(a.space, a.in('x'), a.weight('w'), a.out('y'), {}, a.workspace); });
  list("add_rmsnorm", [](Arguments& a) {
    add_rmsnorm(a.space, a.in('x'), a.in('r'), a.weight('w'), a.out('s'), a.out('y'), {}, a.workspace);
  });
  list("layernorm",
       [](Arguments& a) { layernorm(a.space, a.in('x'), a.weight('w'), a.weight('b'), a.out('y'), {}, a.workspace); });
  list("add_layernorm", [](Arguments& a) {
    add_layernorm(a.space, a.in('x'), a.in('r'), a.weight('w'), a.weight('b'), a.out('s'), a.out('y'), {}, a.workspace);
  });
  list("residual_layernorm_dropout", [](Arguments& a) {
    residual_layernorm_dropout(a.space, a.in('x'), a.in('r'), a.weight('w'), a.weight('b'), a.out('y'),
                               {.x_bias = a.weight('c'), .sum = a.out('s'), .dropout = 0.2, .random = {1, 2}},
                               a.workspace);
  });
  all.back().knows_row = true;
  list("batchnorm, channels last", [](Arguments& a) {
    batchnorm(a.space, a.in('x'), a.weight('m'), a.weight('v'), a.weight('w'), a.weight('b'), a.out('y'),
              {.epsilon = 3, .activation = Activation::relu});
  });
  list("batchnorm, NCHW", [](Arguments& a) {
    auto const of_channels = [&](char name) {
      auto const t = a.table(name, 1, 3);
      return Tensor<bf16 const, 1>{t.data, {3}, {t.strides[1]}};
    };
    batchnorm(a.space, heads(a.in('x', 3 * a.columns), 3), of_channels('m'), of_channels('v'), of_channels('w'),
              of_channels('b'), heads(a.out('y', 3 * a.columns), 3), {.epsilon = 3});
  });
  list("softmax", [](Arguments& a) { softmax(a.space, a.in('x'), a.out('y'), {}, a.workspace); });
  list("softmax, masked", [](Arguments& a) { softmax(a.space, a.in('x'), a.mask('m'), a.out('y'), {}, a.workspace); });
  list("softmax, causal", [](Arguments& a) {
    softmax(a.space, a.in('x'), a.out('y'), {.causal = CausalVariant::lower_right, .queries = 1}, a.workspace);
  });
  list("log_softmax", [](Arguments& a) { log_softmax(a.space, a.in('x'), a.out('y'), a.workspace); });
  list("cross_entropy", [](Arguments& a) {
    auto const losses = a.out_of_rows<float>('l');
    cross_entropy(a.space, a.in('x'), a.indices('t', a.columns), losses, {.reduction = Reduction::none}, a.workspace);
  });
  list("cross_entropy, with gradient", [](Arguments& a) {
    auto const losses = a.out_of_rows<float>('l');
    cross_entropy(a.space, a.in('x'), a.indices('t', a.columns), losses, a.out('g'),
                  {.reduction = Reduction::none, .label_smoothing = 0.1}, a.workspace);
  });
  list("qk_rmsnorm", [](Arguments& a) {
    qk_rmsnorm(a.space, heads(a.in('x', 3 * a.columns), 3), 2, a.weight('q'), a.weight('k'),
               heads(a.out('y', 3 * a.columns), 3), {}, a.workspace);
  });
  list("rope", [](Arguments& a) {
    int const dim = 2 * a.columns;
    rope(a.space, heads(a.in('x', 2 * dim), 2), heads(a.in('z', dim), 1), a.table('t', 2, dim), a.indices('p', 2),
         heads(a.out('q', 2 * dim), 2), heads(a.out('k', dim), 1));
  });
  list("swiglu", [](Arguments& a) { swiglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
  list("swiglu, of two", [](Arguments& a) { swiglu(a.space, a.in('g'), a.in('u'), a.out('y')); });
  list("swiglu, interleaved", [](Arguments& a) {
    swiglu(a.space, a.in('x', 2 * a.columns), a.out('y'), {.layout = GateLayout::interleaved});
  });
  list("reglu", [](Arguments& a) { reglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
  list("geglu", [](Arguments& a) { geglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
  list("bias_activation",
       [](Arguments& a) { bias_activation(a.space, a.in('x'), a.weight('b'), a.out('y'), Activation::gelu); });
  list("bias_activation, masked", [](Arguments& a) {
    bias_activation(a.space, a.in('x'), a.weight('b'), a.mask('m'), a.out('y'), Activation::silu, 0);
  });
  list("add_multiply_relu",
       [](Arguments& a) { add_multiply_relu(a.space, a.in('x'), a.in('a'), a.in('f'), a.out('y')); });
  list("bias_activation_dropout_residual", [](Arguments& a) {
    bias_activation_dropout_residual(a.space, a.in('x'), a.weight('b'), a.in('r'), a.out('y'),
                                     {.activation = Activation::gelu, .dropout = 0.3, .random = {1, 2}});
  });
  all.back().knows_row = true;
  list("dropout", [](Arguments& a) { dropout(a.space, a.in('x'), a.out('y'), {.random = {1, 2}}); });
  all.back().knows_row = true;
  list("embedding", [](Arguments& a) {
    embedding(a.space, a.table('t', 2, a.columns), a.indices('i', 2), a.table('u', 2, a.columns), a.indices('j', 2),
              a.out('y'));
  });
  list("argmax", [](Arguments& a) {
    argmax(a.space, a.in('x'), a.out_of_rows<bf16>('v'), a.out_of_rows<int>('i'), a.workspace);
  });
  list("top_k", [](Arguments& a) {
    int const k = std::min(5, a.columns);
    top_k(a.space, a.in('x'), a.out('v', k), a.out<int>('i', k));
  });
  return all;
}

}  // namespace kfuse::test
