// SPDX-License-Identifier: Apache-2.0
#include <kfuse/models/eager_layer.hpp>

namespace kfuse {

template LayerFunction<Kokkos::DefaultExecutionSpace, double> eager_layer<Kokkos::DefaultExecutionSpace, double>;
template LayerFunction<Kokkos::DefaultExecutionSpace, float> eager_layer<Kokkos::DefaultExecutionSpace, float>;
template LayerFunction<Kokkos::DefaultExecutionSpace, bf16> eager_layer<Kokkos::DefaultExecutionSpace, bf16>;
template LayerFunction<Kokkos::DefaultExecutionSpace, fp16> eager_layer<Kokkos::DefaultExecutionSpace, fp16>;

}  // namespace kfuse
