// SPDX-License-Identifier: Apache-2.0
// error: kfuse: expected a row-major View; write Kokkos::LayoutRight
#include <kfuse/fused/log_softmax.hpp>

void call(Kokkos::DefaultExecutionSpace const& space, Kokkos::View<float**, Kokkos::LayoutLeft> const& x) {
  kfuse::log_softmax(space, x, x);
}
