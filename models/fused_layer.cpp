// SPDX-License-Identifier: Apache-2.0
#include <kfuse/models/fused_layer.hpp>

namespace kfuse {

template LayerFunction<Kokkos::DefaultExecutionSpace, double> fused_layer<Kokkos::DefaultExecutionSpace, double>;
template LayerFunction<Kokkos::DefaultExecutionSpace, float> fused_layer<Kokkos::DefaultExecutionSpace, float>;
template LayerFunction<Kokkos::DefaultExecutionSpace, bf16> fused_layer<Kokkos::DefaultExecutionSpace, bf16>;
template LayerFunction<Kokkos::DefaultExecutionSpace, fp16> fused_layer<Kokkos::DefaultExecutionSpace, fp16>;

}  // namespace kfuse
