// SPDX-License-Identifier: Apache-2.0
// error: kfuse: this View is an output and must not be const
#include <kfuse/fused/log_softmax.hpp>

void call(Kokkos::DefaultExecutionSpace const& space, Kokkos::View<float const**, Kokkos::LayoutRight> const& x) {
  kfuse::log_softmax(space, x, x);
}
