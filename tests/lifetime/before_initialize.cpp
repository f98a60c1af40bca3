// SPDX-License-Identifier: Apache-2.0
// An operator where Kokkos was never initialized; prints its error.
#include <kfuse/fused/rmsnorm.hpp>

#include <Kokkos_Core.hpp>

#include <cstdio>

int main() {
  float memory[8] = {}, weights[4] = {};
  auto const x = kfuse::make_tensor(memory, 2, 4);
  try {
    kfuse::rmsnorm(Kokkos::DefaultExecutionSpace(), x, kfuse::make_tensor(weights, 4), x);
  } catch (kfuse::Error const& error) {
    std::puts(error.what());
    return 1;
  }
  return 0;
}
