// SPDX-License-Identifier: Apache-2.0
// The matrix libraries of this build's backends. Apart from backend.hpp because their headers are large. A backend's
// Blas offers
//   Blas(space, workspace_bytes, tune)
//   fuses(element, epilogue)   can the library do this in the product's own pass, as far as types go?
//   supports(product)          does it take this very product? Remembers what it finds out.
//   run(space, product)        a product that it supports
#ifndef KFUSE_BACKENDS_BLAS_HPP
#define KFUSE_BACKENDS_BLAS_HPP

#include <kfuse/backends/backend.hpp>
#include <kfuse/backends/host/blas.hpp>

#if defined(KOKKOS_ENABLE_CUDA)
#include <kfuse/backends/cuda/blas.hpp>
#elif defined(KOKKOS_ENABLE_HIP)
#include <kfuse/backends/hip/blas.hpp>
#endif

#endif
