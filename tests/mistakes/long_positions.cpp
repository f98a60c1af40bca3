// SPDX-License-Identifier: Apache-2.0
// error: kfuse: positions, and indices that are written, are int, and a mask is std::uint8_t
#include <kfuse/fused/rope.hpp>

#include <cstdint>

void call(Kokkos::DefaultExecutionSpace const& space, Kokkos::View<float***, Kokkos::LayoutRight> const& q,
          Kokkos::View<float**, Kokkos::LayoutRight> const& table, Kokkos::View<std::int64_t*> const& positions) {
  kfuse::rope(space, q, q, table, positions);
}
