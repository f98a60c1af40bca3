// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/fuse_linear.hpp>
#include <kfuse/fused/stage/gate.hpp>
#include <kfuse/fused/stage/heads.hpp>
#include <kfuse/fused/stage/norm.hpp>
#include <kfuse/fused/stage/rope.hpp>

#include "arguments.hpp"

void device_code(AllArguments const& arguments) {
  using namespace kfuse;
  for_each_element_and_double(arguments, [](auto const& a) {
    fuse_linear(a.space, a.blas, a.workspace, "kfuse::fuse_linear", load(a.matrix) | rmsnorm(a.vector), a.matrix,
                add(a.matrix) | store(a.matrix));
  });
  auto const& a = arguments.bf16;
  fuse_linear(a.space, a.blas, a.workspace, "kfuse::fuse_linear", load(a.matrix), a.matrix,
              gate<Activation::silu>() | store(a.matrix));
  fuse_linear(a.space, a.blas, a.workspace, "kfuse::fuse_linear", load(a.matrix) | rmsnorm(a.vector), a.matrix,
              rope(arguments.fp32.matrix, a.indices, {}) | store_qkv(a.matrix, a.heads, a.heads, a.indices, 1));
}
