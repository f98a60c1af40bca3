// SPDX-License-Identifier: Apache-2.0
// The list of row_operators.hpp. source_rules.py wants every row operator here.
#ifndef KFUSE_TESTS_ROW_OPERATOR_LIST_HPP
#define KFUSE_TESTS_ROW_OPERATOR_LIST_HPP

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
#include <kfuse/fused/fold_batchnorm.hpp>
#include <kfuse/fused/geglu.hpp>
#include <kfuse/fused/layernorm.hpp>
#include <kfuse/fused/log_softmax.hpp>
#include <kfuse/fused/qk_rmsnorm.hpp>
#include <kfuse/fused/reglu.hpp>
#include <kfuse/fused/residual_layernorm_dropout.hpp>
#include <kfuse/fused/rmsnorm.hpp>
#include <kfuse/fused/rope.hpp>
#include <kfuse/fused/rope_qkv.hpp>
#include <kfuse/fused/softmax.hpp>
#include <kfuse/fused/swiglu.hpp>
#include <kfuse/fused/top_k.hpp>

#include <algorithm>
#include <functional>
#include <vector>

#include "row_operators.hpp"

namespace kfuse::test {

// Rows as heads, or channels, side by side.
template <class E>
Tensor<E, 3> heads(Tensor<E, 2> const& t, int count) {
  int const head_dim = t.extent(1) / count;
  return {t.data, {t.extent(0), count, head_dim}, {t.strides[0], head_dim * t.strides[1], t.strides[1]}};
}
// The cache of one sequence, a row for each place.
template <class E>
Tensor<E, 4> cache(Tensor<E, 2> const& t, int count) {
  int const head_dim = t.extent(1) / count;
  return {t.data,
          {1, count, t.extent(0), head_dim},
          {t.extent(0) * t.strides[0], head_dim * t.strides[1], t.strides[0], t.strides[1]}};
}

template <class T>
class RowOperatorList {
 public:
  using A = Arguments<T>;
  using Call = std::function<void(A&)>;
  using X = typename T::X;
  using Weight = typename T::Weight;

  // Each line is an operator. `a` makes its arguments.
  RowOperatorList() {
    norms();
    softmaxes();
    losses();
    gates();
    elements();
    rotations();
    searches();
  }
  std::vector<RowOperator<T>> all;

 private:
  void list(char const* name, Call const& call) { list(name, Rows::alone, call); }
  void list(char const* name, Rows rows, Call const& call) { all.push_back({name, rows, call}); }

  void norms() {
    list("rmsnorm", [](A& a) { rmsnorm(a.space, a.in('x'), a.weight('w'), a.out('y'), {}, a.workspace); });
    list("add_rmsnorm", [](A& a) {
      add_rmsnorm(a.space, a.in('x'), a.residual('r'), a.weight('w'), a.out('s'), a.out('y'), {}, a.workspace);
    });
    list("layernorm",
         [](A& a) { layernorm(a.space, a.in('x'), a.weight('w'), a.weight('b'), a.out('y'), {}, a.workspace); });
    list("add_layernorm", [](A& a) {
      add_layernorm(a.space, a.in('x'), a.residual('r'), a.weight('w'), a.weight('b'), a.out('s'), a.out('y'), {},
                    a.workspace);
    });
    list("add_layernorm, y alone", [](A& a) {
      add_layernorm(a.space, a.in('x'), a.residual('r'), a.weight('w'), a.weight('b'), a.out('y'), {}, a.workspace);
    });
    list("residual_layernorm_dropout", Rows::numbered, [](A& a) {
      residual_layernorm_dropout(a.space, a.in('x'), a.residual('r'), a.weight('w'), a.weight('b'), a.out('y'),
                                 {.x_bias = a.template vector<X>('c', a.columns),
                                  .sum = a.template out<X>('s', a.columns),
                                  .dropout = 0.2,
                                  .random = {1, 2}},
                                 a.workspace);
    });
    list("qk_rmsnorm", [](A& a) {
      qk_rmsnorm(a.space, heads(a.in('x', 3 * a.columns), 3), 2, a.weight('q'), a.weight('k'),
                 heads(a.out('y', 3 * a.columns), 3), {}, a.workspace);
    });
    // Their epsilon exceeds what is negative among the values that stand for variances.
    list("batchnorm, channels last", [](A& a) {
      batchnorm(a.space, a.in('x'), a.weight('m'), a.weight('v'), a.weight('w'), a.weight('b'), a.out('y'),
                {.epsilon = 3, .activation = Activation::relu});
    });
    list("batchnorm, NCHW", [](A& a) {
      auto const of_channels = [&](char name) { return a.template vector<Weight>(name, 3); };
      batchnorm(a.space, heads(a.in('x', 3 * a.columns), 3), of_channels('m'), of_channels('v'), of_channels('w'),
                of_channels('b'), heads(a.out('y', 3 * a.columns), 3), {.epsilon = 3});
    });
    list("fold_batchnorm", [](A& a) {
      fold_batchnorm(a.space, a.in('x'), a.weight_of_rows('c'), a.weight_of_rows('m'), a.weight_of_rows('v'),
                     a.weight_of_rows('w'), a.weight_of_rows('b'), a.out('y'), a.template out_of_rows<Weight>('z'), 3);
    });
  }

  void softmaxes() {
    list("softmax", [](A& a) { softmax(a.space, a.in('x'), a.out('y'), {}, a.workspace); });
    list("softmax, masked", [](A& a) { softmax(a.space, a.in('x'), a.mask('m'), a.out('y'), {}, a.workspace); });
    list("softmax, causal, with a sink", [](A& a) {
      SoftmaxOptions<Weight> const options{
          .causal = CausalVariant::lower_right, .sinks = a.template vector<Weight>('s', 1), .queries = 1};
      softmax(a.space, a.in('x'), a.out('y'), options, a.workspace);
    });
    list("log_softmax", [](A& a) { log_softmax(a.space, a.in('x'), a.out('y'), a.workspace); });
  }

  void losses() {
    using Value = Real<X>;
    list("cross_entropy", [](A& a) {
      auto const loss = a.template out_of_rows<Value>('l');
      cross_entropy(a.space, a.in('x'), a.indices('t', a.columns), loss, {.reduction = Reduction::none}, a.workspace);
    });
    list("cross_entropy, with gradient", [](A& a) {
      auto const loss = a.template out_of_rows<Value>('l');
      cross_entropy(a.space, a.in('x'), a.indices('t', a.columns), loss, a.out('g'),
                    {.reduction = Reduction::none, .label_smoothing = 0.1, .status = a.status}, a.workspace);
    });
    list("cross_entropy, sum", Rows::joint, [](A& a) {
      auto const loss = a.template out_of_all<Value>('l');
      cross_entropy(a.space, a.in('x'), a.indices('t', a.columns), loss, {.reduction = Reduction::sum}, a.workspace);
    });
    list("cross_entropy, mean by weights of classes, with gradient", Rows::joint, [](A& a) {
      auto const loss = a.template out_of_all<Value>('l'), total = a.template out_of_all<Value>('n');
      cross_entropy(a.space, a.in('x'), a.indices('t', a.columns), loss, a.out('g'),
                    {.weight = a.template vector<Value>('w', a.columns), .total_weight = total}, a.workspace);
    });
  }

  void gates() {
    list("swiglu", [](A& a) { swiglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
    list("swiglu, of two", [](A& a) { swiglu(a.space, a.in('g'), a.in('u'), a.out('y')); });
    list("swiglu, interleaved",
         [](A& a) { swiglu(a.space, a.in('x', 2 * a.columns), a.out('y'), {.layout = GateLayout::interleaved}); });
    list("reglu", [](A& a) { reglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
    list("geglu", [](A& a) { geglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
    list("geglu, tanh, of two", [](A& a) { geglu(a.space, a.in('g'), a.in('u'), a.out('y'), GeluApproximate::tanh); });
  }

  void elements() {
    list("bias_activation",
         [](A& a) { bias_activation(a.space, a.in('x'), a.weight('b'), a.out('y'), Activation::gelu); });
    list("bias_activation, masked", [](A& a) {
      bias_activation(a.space, a.in('x'), a.weight('b'), a.mask('m'), a.out('y'), Activation::silu, 0);
    });
    list("add_multiply_relu", [](A& a) { add_multiply_relu(a.space, a.in('x'), a.in('a'), a.in('f'), a.out('y')); });
    list("bias_activation_dropout_residual", Rows::numbered, [](A& a) {
      bias_activation_dropout_residual(a.space, a.in('x'), a.weight('b'), a.residual('r'), a.out('y'),
                                       {.activation = Activation::gelu, .dropout = 0.3, .random = {1, 2}});
    });
    list("dropout", Rows::numbered, [](A& a) { dropout(a.space, a.in('x'), a.out('y'), {.random = {1, 2}}); });
    list("embedding", [](A& a) { embedding(a.space, a.table('t', 2, a.columns), a.indices('i', 2), a.out('y')); });
    list("embedding, of three tables, with dropout", Rows::numbered, [](A& a) {
      embedding(a.space, a.table('t', 2, a.columns), a.indices('i', 2), a.table('u', 2, a.columns), a.indices('j', 2),
                a.table('v', 2, a.columns), a.indices('k', 2), a.out('y'),
                {.scale = 2, .dropout = 0.5, .random = {1, 2}, .status = a.status});
    });
  }

  // Of heads of 2 * columns.
  void rotations() {
    list("rope", [](A& a) {
      int const dim = 2 * a.columns;
      rope(a.space, heads(a.in('x', 2 * dim), 2), heads(a.in('z', dim), 1), a.template table<Weight>('t', 2, dim),
           a.indices('p', 2), heads(a.out('q', 2 * dim), 2), heads(a.out('k', dim), 1));
    });
    list("rope, in place, interleaved", [](A& a) {
      int const dim = 2 * a.columns;
      rope(a.space, heads(a.in_out('x', 2 * dim), 2), heads(a.in_out('z', dim), 1),
           a.template table<Weight>('t', 2, dim), a.indices('p', 2),
           {.pairs = RopePairs::interleaved, .status = a.status});
    });
    list("rope_qkv", Rows::numbered, [](A& a) {
      int const dim = 2 * a.columns;
      rope_qkv(a.space, a.in('x', 4 * dim), a.template table<Weight>('t', a.rows, dim), a.row_numbers('p'),
               a.out('q', 2 * dim), cache(a.out('k', dim), 1), cache(a.out('v', dim), 1));
    });
  }

  void searches() {
    list("argmax", [](A& a) {
      argmax(a.space, a.in('x'), a.template out_of_rows<X>('v'), a.template out_of_rows<int>('i'), a.workspace);
    });
    list("argmax, indices alone",
         [](A& a) { argmax(a.space, a.in('x'), a.template out_of_rows<int>('i'), a.workspace); });
    list("top_k", [](A& a) {
      int const k = std::min(5, a.columns);
      top_k(a.space, a.in('x'), a.template out<X>('v', k), a.template out<int>('i', k));
    });
  }
};

template <class T>
std::vector<RowOperator<T>> row_operators() {
  return RowOperatorList<T>().all;
}

}  // namespace kfuse::test

#endif
