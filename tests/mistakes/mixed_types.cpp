// SPDX-License-Identifier: Apache-2.0
// error: kfuse: this argument must have the element type of those before it
#include <kfuse/fused/batchnorm.hpp>

void call(Kokkos::DefaultExecutionSpace const& space, Kokkos::View<float**, Kokkos::LayoutRight> const& x,
          Kokkos::View<float*> const& mean, Kokkos::View<double*> const& variance) {
  kfuse::batchnorm(space, x, mean, variance, mean, mean, x);
}
