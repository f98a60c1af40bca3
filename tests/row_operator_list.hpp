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
#include <string>
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
  void list(std::string const& name, Call const& call) { list(name, Rows::alone, call); }
  void list(std::string const& name, Rows rows, Call const& call) { all.push_back({name, rows, call}); }
  // Takes the probability to drop a value, too. Where that is 0, the same kernels know no numbers of rows.
  void list(std::string const& name, double p, std::function<void(A&, double)> const& call) {
    list(name, Rows::numbered, [=](A& a) { call(a, p); });
    list(name + ", of nothing", [=](A& a) { call(a, 0); });
  }

  void norms() {
    list("rmsnorm", [](A& a) { rmsnorm(a.space, a.in("x"), a.weight("weight"), a.out("y"), {}, a.workspace); });
    list("add_rmsnorm", [](A& a) {
      add_rmsnorm(a.space, a.in("x"), a.residual("residual"), a.weight("weight"), a.out("sum"), a.out("y"), {},
                  a.workspace);
    });
    list("layernorm", [](A& a) {
      layernorm(a.space, a.in("x"), a.weight("weight"), a.weight("bias"), a.out("y"), {}, a.workspace);
    });
    list("add_layernorm", [](A& a) {
      add_layernorm(a.space, a.in("x"), a.residual("residual"), a.weight("weight"), a.weight("bias"), a.out("sum"),
                    a.out("y"), {}, a.workspace);
    });
    list("add_layernorm, y alone", [](A& a) {
      add_layernorm(a.space, a.in("x"), a.residual("residual"), a.weight("weight"), a.weight("bias"), a.out("y"), {},
                    a.workspace);
    });
    list("residual_layernorm_dropout", 0.2, [](A& a, double p) {
      residual_layernorm_dropout(a.space, a.in("x"), a.residual("residual"), a.weight("weight"), a.weight("bias"),
                                 a.out("y"),
                                 {.x_bias = a.template vector<X>("x_bias", a.columns),
                                  .sum = a.template out<X>("sum", a.columns),
                                  .dropout = p,
                                  .random = {1, 2}},
                                 a.workspace);
    });
    list("qk_rmsnorm", [](A& a) {
      qk_rmsnorm(a.space, heads(a.in("x", 3 * a.columns), 3), 2, a.weight("q_weight"), a.weight("k_weight"),
                 heads(a.out("y", 3 * a.columns), 3), {}, a.workspace);
    });
    // Their epsilon exceeds what is negative among the values that stand for variances.
    list("batchnorm, channels last", [](A& a) {
      batchnorm(a.space, a.in("x"), a.weight("running_mean"), a.weight("running_var"), a.weight("weight"),
                a.weight("bias"), a.out("y"), {.epsilon = 3, .activation = Activation::relu});
    });
    list("batchnorm, NCHW", [](A& a) {
      auto const of_channels = [&](char const* name) { return a.template vector<Weight>(name, 3); };
      batchnorm(a.space, heads(a.in("x", 3 * a.columns), 3), of_channels("running_mean"), of_channels("running_var"),
                of_channels("weight"), of_channels("bias"), heads(a.out("y", 3 * a.columns), 3), {.epsilon = 3});
    });
    list("fold_batchnorm", [](A& a) {
      fold_batchnorm(a.space, a.in("weight"), a.weight_of_rows("bias"), a.weight_of_rows("running_mean"),
                     a.weight_of_rows("running_var"), a.weight_of_rows("bn_weight"), a.weight_of_rows("bn_bias"),
                     a.out("out_weight"), a.template out_of_rows<Weight>("out_bias"), 3);
    });
  }

  void softmaxes() {
    list("softmax", [](A& a) { softmax(a.space, a.in("x"), a.out("y"), {}, a.workspace); });
    list("softmax, masked", [](A& a) { softmax(a.space, a.in("x"), a.mask("visible"), a.out("y"), {}, a.workspace); });
    list("softmax, causal, with a sink", [](A& a) {
      SoftmaxOptions<Weight> const options{
          .causal = CausalVariant::lower_right, .sinks = a.template vector<Weight>("sinks", 1), .queries = 1};
      softmax(a.space, a.in("x"), a.out("y"), options, a.workspace);
    });
    list("log_softmax", [](A& a) { log_softmax(a.space, a.in("x"), a.out("y"), a.workspace); });
  }

  void losses() {
    using Value = Real<X>;
    list("cross_entropy", [](A& a) {
      auto const loss = a.template out_of_rows<Value>("loss");
      cross_entropy(a.space, a.in("logits"), a.indices("labels", a.columns), loss, {.reduction = Reduction::none},
                    a.workspace);
    });
    list("cross_entropy, with gradient", [](A& a) {
      auto const loss = a.template out_of_rows<Value>("loss");
      cross_entropy(a.space, a.in("logits"), a.indices("labels", a.columns), loss, a.out("gradient"),
                    {.reduction = Reduction::none, .label_smoothing = 0.1, .status = a.status}, a.workspace);
    });
    list("cross_entropy, sum", Rows::joint, [](A& a) {
      auto const loss = a.template out_of_all<Value>("loss");
      cross_entropy(a.space, a.in("logits"), a.indices("labels", a.columns), loss, {.reduction = Reduction::sum},
                    a.workspace);
    });
    list("cross_entropy, mean by weights of classes, with gradient", Rows::joint, [](A& a) {
      auto const loss = a.template out_of_all<Value>("loss"), total = a.template out_of_all<Value>("total_weight");
      cross_entropy(a.space, a.in("logits"), a.indices("labels", a.columns), loss, a.out("gradient"),
                    {.weight = a.template vector<Value>("weight", a.columns), .total_weight = total}, a.workspace);
    });
  }

  void gates() {
    list("swiglu", [](A& a) { swiglu(a.space, a.in("gate_up", 2 * a.columns), a.out("y")); });
    list("swiglu, of two", [](A& a) { swiglu(a.space, a.in("gate"), a.in("up"), a.out("y")); });
    list("swiglu, interleaved", [](A& a) {
      swiglu(a.space, a.in("gate_up", 2 * a.columns), a.out("y"), {.layout = GateLayout::interleaved});
    });
    list("reglu", [](A& a) { reglu(a.space, a.in("gate_up", 2 * a.columns), a.out("y")); });
    list("geglu", [](A& a) { geglu(a.space, a.in("gate_up", 2 * a.columns), a.out("y")); });
    list("geglu, tanh, of two",
         [](A& a) { geglu(a.space, a.in("gate"), a.in("up"), a.out("y"), GeluApproximate::tanh); });
  }

  void elements() {
    list("bias_activation",
         [](A& a) { bias_activation(a.space, a.in("x"), a.weight("bias"), a.out("y"), Activation::gelu); });
    list("bias_activation, masked", [](A& a) {
      bias_activation(a.space, a.in("x"), a.weight("bias"), a.mask("mask"), a.out("y"), Activation::silu, 0);
    });
    list("add_multiply_relu",
         [](A& a) { add_multiply_relu(a.space, a.in("x"), a.in("addend"), a.in("factor"), a.out("y")); });
    list("bias_activation_dropout_residual", 0.3, [](A& a, double p) {
      bias_activation_dropout_residual(a.space, a.in("x"), a.weight("bias"), a.residual("residual"), a.out("y"),
                                       {.activation = Activation::gelu, .dropout = p, .random = {1, 2}});
    });
    list("dropout", 0.5, [](A& a, double p) { dropout(a.space, a.in("x"), a.out("y"), {.p = p, .random = {1, 2}}); });
    list("embedding",
         [](A& a) { embedding(a.space, a.table("table", 2, a.columns), a.indices("indices", 2), a.out("y")); });
    list("embedding, of three tables, with dropout", 0.5, [](A& a, double p) {
      embedding(a.space, a.table("table", 2, a.columns), a.indices("indices", 2), a.table("second", 2, a.columns),
                a.indices("second_indices", 2), a.table("third", 2, a.columns), a.indices("third_indices", 2),
                a.out("y"), {.scale = 2, .dropout = p, .random = {1, 2}, .status = a.status});
    });
  }

  // Of heads of 2 * columns.
  void rotations() {
    list("rope", [](A& a) {
      int const dim = 2 * a.columns;
      rope(a.space, heads(a.in("q", 2 * dim), 2), heads(a.in("k", dim), 1), a.template table<Weight>("table", 2, dim),
           a.indices("positions", 2), heads(a.out("q_out", 2 * dim), 2), heads(a.out("k_out", dim), 1));
    });
    list("rope, in place, interleaved", [](A& a) {
      int const dim = 2 * a.columns;
      rope(a.space, heads(a.in_out("q", 2 * dim), 2), heads(a.in_out("k", dim), 1),
           a.template table<Weight>("table", 2, dim), a.indices("positions", 2),
           {.pairs = RopePairs::interleaved, .status = a.status});
    });
    list("rope_qkv", Rows::numbered, [](A& a) {
      int const dim = 2 * a.columns;
      rope_qkv(a.space, a.in("qkv", 4 * dim), a.template table<Weight>("table", a.rows, dim),
               a.row_numbers("positions"), a.out("q", 2 * dim), cache(a.out("k_cache", dim), 1),
               cache(a.out("v_cache", dim), 1));
    });
  }

  void searches() {
    list("argmax", [](A& a) {
      argmax(a.space, a.in("x"), a.template out_of_rows<X>("values"), a.template out_of_rows<int>("indices"),
             a.workspace);
    });
    list("argmax, indices alone",
         [](A& a) { argmax(a.space, a.in("x"), a.template out_of_rows<int>("indices"), a.workspace); });
    list("top_k", [](A& a) {
      int const k = std::min(5, a.columns);
      top_k(a.space, a.in("x"), a.template out<X>("values", k), a.template out<int>("indices", k));
    });
  }
};

template <class T>
std::vector<RowOperator<T>> row_operators() {
  return RowOperatorList<T>().all;
}

}  // namespace kfuse::test

#endif
