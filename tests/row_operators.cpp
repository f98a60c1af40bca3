// SPDX-License-Identifier: Apache-2.0
#include "row_operators.hpp"

#include <kfuse/fused/add_layernorm.hpp>
#include <kfuse/fused/add_rmsnorm.hpp>
#include <kfuse/fused/argmax.hpp>
#include <kfuse/fused/bias_activation.hpp>
#include <kfuse/fused/cross_entropy.hpp>
#include <kfuse/fused/dropout.hpp>
#include <kfuse/fused/embedding.hpp>
#include <kfuse/fused/geglu.hpp>
#include <kfuse/fused/layernorm.hpp>
#include <kfuse/fused/log_softmax.hpp>
#include <kfuse/fused/reglu.hpp>
#include <kfuse/fused/rmsnorm.hpp>
#include <kfuse/fused/softmax.hpp>
#include <kfuse/fused/swiglu.hpp>
#include <kfuse/fused/top_k.hpp>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace kfuse::test {

// Each line is an operator. `a` makes its arguments.
std::vector<RowOperator> row_operators() {
  std::vector<RowOperator> all;
  auto const list = [&](std::string name, auto const& call) {
    all.push_back({std::move(name), [=](Arguments<float>& a) { call(a); }, [=](Arguments<bf16>& a) { call(a); }});
  };
  list("rmsnorm", [](auto& a) { rmsnorm(a.space, a.in('x'), a.weight('w'), a.out('y'), {}, a.workspace); });
  list("add_rmsnorm", [](auto& a) {
    add_rmsnorm(a.space, a.in('x'), a.in('r'), a.weight('w'), a.out('s'), a.out('y'), {}, a.workspace);
  });
  list("layernorm",
       [](auto& a) { layernorm(a.space, a.in('x'), a.weight('w'), a.weight('b'), a.out('y'), {}, a.workspace); });
  list("add_layernorm", [](auto& a) {
    add_layernorm(a.space, a.in('x'), a.in('r'), a.weight('w'), a.weight('b'), a.out('s'), a.out('y'), {}, a.workspace);
  });
  list("softmax", [](auto& a) { softmax(a.space, a.in('x'), a.out('y'), {}, a.workspace); });
  list("softmax, masked", [](auto& a) { softmax(a.space, a.in('x'), a.mask('m'), a.out('y'), {}, a.workspace); });
  list("softmax, causal", [](auto& a) {
    softmax(a.space, a.in('x'), a.out('y'), {.causal = CausalVariant::lower_right, .queries = 1}, a.workspace);
  });
  list("log_softmax", [](auto& a) { log_softmax(a.space, a.in('x'), a.out('y'), a.workspace); });
  list("cross_entropy", [](auto& a) {
    cross_entropy(a.space, a.in('x'), a.indices('i', std::max(1, a.columns)), a.template out_of_rows<float>('l'),
                  a.out('y'), {.reduction = Reduction::none, .label_smoothing = 0.1}, a.workspace);
  });
  list("swiglu", [](auto& a) { swiglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
  list("swiglu, of two", [](auto& a) { swiglu(a.space, a.in('g'), a.in('u'), a.out('y')); });
  list("swiglu, interleaved",
       [](auto& a) { swiglu(a.space, a.in('x', 2 * a.columns), a.out('y'), {.layout = GateLayout::interleaved}); });
  list("reglu", [](auto& a) { reglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
  list("geglu", [](auto& a) { geglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
  list("bias_activation",
       [](auto& a) { bias_activation(a.space, a.in('x'), a.weight('b'), a.out('y'), Activation::gelu); });
  list("bias_activation, masked", [](auto& a) {
    bias_activation(a.space, a.in('x'), a.weight('b'), a.mask('m'), a.out('y'), Activation::silu, 0);
  });
  list("dropout", [](auto& a) { dropout(a.space, a.in('x'), a.out('y'), {.random = {1, 2}}); });
  all.back().knows_row = true;
  list("embedding", [](auto& a) {
    embedding(a.space, a.table('t', 2, a.columns), a.indices('i', 2), a.table('u', 2, a.columns), a.indices('j', 2),
              a.out('y'));
  });
  list("argmax", [](auto& a) {
    using Element = typename std::remove_cvref_t<decltype(a)>::Element;
    argmax(a.space, a.in('x'), a.template out_of_rows<Element>('v'), a.template out_of_rows<int>('i'), a.workspace);
  });
  list("top_k", [](auto& a) {
    int const k = std::min(5, a.columns);
    top_k(a.space, a.in('x'), a.out('v', k), a.template out<int>('i', k));
  });
  return all;
}

}  // namespace kfuse::test
