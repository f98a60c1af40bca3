// SPDX-License-Identifier: Apache-2.0
// Every row operator in one line, for tests of what is true of all of them. `a` makes its arguments.
#ifndef KFUSE_TESTS_ROW_OPERATORS_HPP
#define KFUSE_TESTS_ROW_OPERATORS_HPP

#include <kfuse/fused/add_layernorm.hpp>
#include <kfuse/fused/add_rmsnorm.hpp>
#include <kfuse/fused/bias_activation.hpp>
#include <kfuse/fused/embedding.hpp>
#include <kfuse/fused/geglu.hpp>
#include <kfuse/fused/layernorm.hpp>
#include <kfuse/fused/rmsnorm.hpp>
#include <kfuse/fused/softmax.hpp>
#include <kfuse/fused/swiglu.hpp>

namespace kfuse::test {

// Calls f(name, run) for each; run(a) calls the operator. Its label is the name up to the first comma.
template <class F>
void for_each_row_operator(F const& f) {
  f("rmsnorm", [](auto& a) { rmsnorm(a.space, a.in('x'), a.weight('w'), a.out('y'), {}, a.workspace); });
  f("add_rmsnorm", [](auto& a) {
    add_rmsnorm(a.space, a.in('x'), a.in('r'), a.weight('w'), a.out('s'), a.out('y'), {}, a.workspace);
  });
  f("layernorm",
    [](auto& a) { layernorm(a.space, a.in('x'), a.weight('w'), a.weight('b'), a.out('y'), {}, a.workspace); });
  f("add_layernorm", [](auto& a) {
    add_layernorm(a.space, a.in('x'), a.in('r'), a.weight('w'), a.weight('b'), a.out('s'), a.out('y'), {}, a.workspace);
  });
  f("softmax", [](auto& a) { softmax(a.space, a.in('x'), a.out('y'), {}, a.workspace); });
  f("softmax, masked", [](auto& a) { softmax(a.space, a.in('x'), a.mask('m'), a.out('y'), {}, a.workspace); });
  f("swiglu", [](auto& a) { swiglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
  f("swiglu, of two", [](auto& a) { swiglu(a.space, a.in('g'), a.in('u'), a.out('y')); });
  f("geglu", [](auto& a) { geglu(a.space, a.in('x', 2 * a.columns), a.out('y')); });
  f("bias_activation",
    [](auto& a) { bias_activation(a.space, a.in('x'), a.weight('b'), a.out('y'), Activation::gelu); });
  f("embedding", [](auto& a) {
    embedding(a.space, a.table('t', 2, a.columns), a.indices('i', 2), a.table('u', 2, a.columns), a.indices('j', 2),
              a.out('y'));
  });
}

}  // namespace kfuse::test

#endif
