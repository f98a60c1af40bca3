// SPDX-License-Identifier: Apache-2.0
// error: kfuse: element types are double, float, kfuse::bf16 and kfuse::fp16
#include <kfuse/fused/rmsnorm.hpp>

void call(Kokkos::DefaultExecutionSpace const& space, Kokkos::View<int**, Kokkos::LayoutRight> const& x,
          Kokkos::View<float*> const& weight) {
  kfuse::rmsnorm(space, x, weight, x);
}
