// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_HIP_FRAGMENT_HPP
#define KFUSE_BACKENDS_HIP_FRAGMENT_HPP

#include <kfuse/backends/hip/chip.hpp>
#include <kfuse/backends/hip/mfma_fragment.hpp>
#include <kfuse/backends/hip/wmma_fragment.hpp>

#include <type_traits>

namespace kfuse::hip {

// void: this chip has no matrix instructions that we know.
using MatrixUnit = std::conditional_t<chip.matrix_cores == MatrixCores::mfma, MfmaUnit<>,
                                      std::conditional_t<chip.matrix_cores == MatrixCores::wmma, WmmaUnit<>, void>>;

}  // namespace kfuse::hip

#endif
