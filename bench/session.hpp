// SPDX-License-Identifier: Apache-2.0
// Kokkos, for as long as a command needs it, and the space the command runs on.
#ifndef KFUSE_BENCH_SESSION_HPP
#define KFUSE_BENCH_SESSION_HPP

#include <Kokkos_Core.hpp>

#include <string>
#include <type_traits>
#include <vector>

#include "arguments.hpp"
#include "bench.hpp"

namespace bench {

template <class Space>
std::string space_name() {
  return kfuse::impl::Backend<Space>::Device::space_name;
}
// The spaces of this build, the best first.
inline std::vector<std::string> space_names() {
  if constexpr (std::is_same_v<DeviceSpace, HostSpace>)
    return {space_name<HostSpace>()};
  else
    return {space_name<DeviceSpace>(), space_name<HostSpace>()};
}

// Calls f(space) with an instance that is not the default one, so that nothing works by waiting for the default one.
template <class F>
int in_session(std::string const& asked, F const& f) {
  std::string const name = asked.empty() ? space_names().front() : one_of("--space", asked, space_names());
  if (Kokkos::num_devices() == 0)
    throw UsageError("there is no GPU that this build can use; a build with PRESET=host runs on the host alone");
  Kokkos::ScopeGuard const kokkos;
  if constexpr (!std::is_same_v<DeviceSpace, HostSpace>)
    if (name == space_name<HostSpace>()) return f(Kokkos::Experimental::partition_space(HostSpace(), 1)[0]);
  return f(Kokkos::Experimental::partition_space(DeviceSpace(), 1)[0]);
}

}  // namespace bench

#endif
