// SPDX-License-Identifier: Apache-2.0
// error: kfuse: positions, and indices that are written, are int, and a mask is std::uint8_t
#include <kfuse/fused/softmax.hpp>

void call(Kokkos::DefaultExecutionSpace const& space, Kokkos::View<float**, Kokkos::LayoutRight> const& x,
          Kokkos::View<bool**, Kokkos::LayoutRight> const& visible) {
  kfuse::softmax(space, x, visible, x);
}
