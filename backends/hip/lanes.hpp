// SPDX-License-Identifier: Apache-2.0
// A team's lanes on AMD GPUs: one thread each, 64 to a wave on CDNA and 32 on RDNA. Teams are launched with a vector
// length of one, so the team rank counts threads.
#ifndef KFUSE_BACKENDS_HIP_LANES_HPP
#define KFUSE_BACKENDS_HIP_LANES_HPP

#include <kfuse/backends/hip/chip.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace kfuse::hip {

template <class Team>
class Lanes {
 public:
  static constexpr int width = chip.wave;

  KOKKOS_FUNCTION explicit Lanes(Team const& team) : team_(team) {}

  KOKKOS_FUNCTION int rank() const { return team_.team_rank(); }
  KOKKOS_FUNCTION int size() const { return team_.team_size(); }

  template <class T>
  KOKKOS_FUNCTION T shuffle_xor(T const& x, int mask) const {
    return word_by_word(x, [=](unsigned word) {
#if defined(__HIP_DEVICE_COMPILE__)
      return __shfl_xor(word, mask);
#else
      return word + unsigned(mask) * 0;
#endif
    });
  }
  template <class T>
  KOKKOS_FUNCTION T broadcast(T const& x, int source) const {
    return word_by_word(x, [=](unsigned word) {
#if defined(__HIP_DEVICE_COMPILE__)
      return __shfl(word, source);
#else
      return word + unsigned(source) * 0;
#endif
    });
  }
  KOKKOS_FUNCTION void barrier() const {
    team_.team_barrier();
  }
  KOKKOS_FUNCTION void* scratch(std::size_t bytes) const {
    return team_.team_scratch(0).get_shmem_aligned(bytes, 16);
  }

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

}  // namespace kfuse::hip

namespace kfuse::impl {
template <class Team>
struct LanesOf;
template <>
struct LanesOf<Kokkos::TeamPolicy<Kokkos::HIP>::member_type>
    : hip::Lanes<Kokkos::TeamPolicy<Kokkos::HIP>::member_type> {
  using Lanes::Lanes;
};
}  // namespace kfuse::impl

#endif
