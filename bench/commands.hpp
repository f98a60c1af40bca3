// SPDX-License-Identifier: Apache-2.0
// What the program can be told to do. Each returns the program's exit code.
#ifndef KFUSE_BENCH_COMMANDS_HPP
#define KFUSE_BENCH_COMMANDS_HPP

#include "options.hpp"

namespace bench {

constexpr int success = 0, failure = 1, usage_error = 2, wrong_result = 3;

int layer(Options const& options);
int op(Options const& options);
int explain(Options options);  // operators, if there are any, else a layer
int device(Options const& options);
int list();

}  // namespace bench

#endif
