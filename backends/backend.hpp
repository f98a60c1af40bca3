// SPDX-License-Identifier: Apache-2.0
// Asks which vendor it is, as blas.hpp and fragment.hpp beside it do, and nobody else. `backend` names the device side
// of this build; BackendOf<Space> is what serves one execution space (a CUDA build also runs on host spaces).
//
// A backend offers, verb for verb:
//   arithmetic   narrow conversions, exp2, divide, on the device and on the host
//   LanesOf      the lanes of a team: width, rank, shuffle, broadcast, barrier
//   launch       a kernel struct over a league of teams, through Kokkos wherever Kokkos can
//   Graph        record what a stream does, replay it
//   Blas         the vendor's matrix products
//   device       name, memory, stream, timing
#ifndef KFUSE_BACKENDS_BACKEND_HPP
#define KFUSE_BACKENDS_BACKEND_HPP

#include <kfuse/backends/host/backend.hpp>

#include <Kokkos_Core.hpp>
#if defined(KOKKOS_ENABLE_CUDA)
#include <kfuse/backends/cuda/backend.hpp>
#elif defined(KOKKOS_ENABLE_HIP)
#include <kfuse/backends/hip/backend.hpp>
#endif

namespace kfuse {

#if defined(KOKKOS_ENABLE_CUDA)
namespace backend = cuda;
#elif defined(KOKKOS_ENABLE_HIP)
namespace backend = hip;
#else
namespace backend = host;
#endif

namespace impl {

template <class Space>
struct BackendOf {
  using type = host::Backend;
};
template <>
struct BackendOf<typename backend::Backend::Space> {
  using type = backend::Backend;
};
template <class Space>
using Backend = typename BackendOf<Space>::type;

// Copies to team memory, of 16 bytes each, aligned to 16 on both sides:
//   start(to, from, exists)      zeros where nothing exists, and then `from` is not read
//   wait()                       what this lane has started is there; for other lanes, after a barrier
//   close_group()                what this lane has started since the last call of it is a group
//   wait_for_all_but<groups>()   as wait(), but for the last `groups` groups
// and for the speed of memory, where each multiprocessor has one team that reads:
//   lane_groups, bytes_ahead     how many of them it needs, each with so much on its way
//   team_bytes, team_registers   most memory that it may have, and registers that it should take
template <class Space>
using AsyncCopy = typename Backend<Space>::AsyncCopy;

// The lanes of a team, whatever runs it. Backends specialise it for their team handles; a test may for its own.
template <class Team>
struct LanesOf : host::Lanes<Team> {
  using host::Lanes<Team>::Lanes;
};

}  // namespace impl
}  // namespace kfuse

#endif
