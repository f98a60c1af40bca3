// SPDX-License-Identifier: Apache-2.0
// A team's lanes on the host: one, which is alone.
#ifndef KFUSE_BACKENDS_HOST_LANES_HPP
#define KFUSE_BACKENDS_HOST_LANES_HPP

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace kfuse::host {

template <class Team>
class Lanes {
 public:
  // Lanes that exchange values without memory.
  static constexpr int width = 1;

  KOKKOS_FUNCTION explicit Lanes(Team const& team) : team_(team) {}

  // This lane among all lanes of the team, and how many there are.
  KOKKOS_FUNCTION int rank() const { return 0; }
  KOKKOS_FUNCTION int size() const { return 1; }

  template <class T>
  KOKKOS_FUNCTION T shuffle_xor(T const& x, int) const {
    return x;
  }
  // The value that lane `source` of this group of `width` lanes holds.
  template <class T>
  KOKKOS_FUNCTION T broadcast(T const& x, int) const {
    return x;
  }
  // All lanes of the team arrive; what each wrote to scratch before is seen by all after.
  KOKKOS_FUNCTION void barrier() const {}
  // The same for the lanes that exchange values.
  KOKKOS_FUNCTION void group_barrier() const {}
  // Until here a kernel that says `waits_itself` may run beside any before it, and must not touch what those write.
  KOKKOS_FUNCTION void wait_for_kernel_before() const {}
  // The kernel after this one may start, as far as its own wait, once all teams of this one have come here.
  KOKKOS_FUNCTION void let_next_kernel_start() const {}
  // A hint for compilers, which orders nothing between lanes: what the source reads before shall be asked for before.
  KOKKOS_FUNCTION void reads_stay_before() const {}
  // Team memory of the size given at launch, aligned to 16 bytes. Call it once per kernel.
  KOKKOS_FUNCTION void* scratch(std::size_t bytes) const { return team_.team_scratch(1).get_shmem_aligned(bytes, 16); }

 private:
  Team const& team_;
};

}  // namespace kfuse::host

#endif
