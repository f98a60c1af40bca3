// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_GPU_LANES_HPP
#define KFUSE_BACKENDS_GPU_LANES_HPP

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace kfuse::gpu {

// Team memory, from its beginning.
KOKKOS_INLINE_FUNCTION void* team_memory() {
  KOKKOS_IF_ON_DEVICE((alignas(16) extern __shared__ unsigned char kfuse_team_memory[]; return kfuse_team_memory;))
  KOKKOS_IF_ON_HOST((return nullptr;))
}

// A team's lanes, one thread each. Teams are launched with a vector length of one, so the team rank counts threads.
// Exchange has the width of the groups that exchange values, how they exchange a word, and how they wait for each other
// and for the kernel before this one.
template <class Team, class Exchange>
class Lanes {
 public:
  static constexpr int width = Exchange::width;

  KOKKOS_FUNCTION explicit Lanes(Team const& team) : team_(team) {}

  KOKKOS_FUNCTION int rank() const { return team_.team_rank(); }
  KOKKOS_FUNCTION int size() const { return team_.team_size(); }

  template <class T>
  KOKKOS_FUNCTION T shuffle_xor(T const& x, int mask) const {
    return word_by_word(x, [=](unsigned word) { return Exchange::shuffle_xor(word, mask); });
  }
  template <class T>
  KOKKOS_FUNCTION T broadcast(T const& x, int source) const {
    return word_by_word(x, [=](unsigned word) { return Exchange::broadcast(word, source); });
  }
  KOKKOS_FUNCTION void barrier() const { KOKKOS_IF_ON_DEVICE((__syncthreads();)) }
  KOKKOS_FUNCTION void group_barrier() const { Exchange::barrier(); }
  KOKKOS_FUNCTION void wait_for_kernel_before() const { Exchange::wait_for_kernel_before(); }
  KOKKOS_FUNCTION void let_next_kernel_start() const { Exchange::let_next_kernel_start(); }
  KOKKOS_FUNCTION void reads_stay_before() const { asm volatile("" ::: "memory"); }
  // All that the launch gave, from its beginning, the same memory at each call: what a Kokkos team computes to find its
  // part of it takes longer than a small reduction. Kokkos' reductions would use it, too; kernels have none of them.
  KOKKOS_FUNCTION void* scratch(std::size_t) const { return team_memory(); }

 private:
  template <class T, class F>
  KOKKOS_FUNCTION static T word_by_word(T const& x, F const& exchange) {
    static_assert(sizeof(T) % sizeof(unsigned) == 0, "lanes exchange whole 4-byte words");
    struct Words {
      unsigned word[sizeof(T) / sizeof(unsigned)];
    };
    auto words = Kokkos::bit_cast<Words>(x);
    for (unsigned& word : words.word) word = exchange(word);
    return Kokkos::bit_cast<T>(words);
  }

  Team const& team_;
};

}  // namespace kfuse::gpu

#endif
