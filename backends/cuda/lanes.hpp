// SPDX-License-Identifier: Apache-2.0
// A team's lanes on NVIDIA GPUs: one thread each, 32 to a warp. Teams are launched with a vector length of one, so the
// team rank counts threads.
#ifndef KFUSE_BACKENDS_CUDA_LANES_HPP
#define KFUSE_BACKENDS_CUDA_LANES_HPP

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace kfuse::cuda {

template <class Team>
class Lanes {
 public:
  static constexpr int width = 32;

  KOKKOS_FUNCTION explicit Lanes(Team const& team) : team_(team) {}

  KOKKOS_FUNCTION int rank() const { return team_.team_rank(); }
  KOKKOS_FUNCTION int size() const { return team_.team_size(); }

  template <class T>
  KOKKOS_FUNCTION T shuffle_xor(T const& x, int mask) const {
    return word_by_word(x, [=](unsigned word) {
#if defined(__CUDA_ARCH__)
      return __shfl_xor_sync(~0u, word, mask);
#else
      return word + unsigned(mask) * 0;
#endif
    });
  }
  template <class T>
  KOKKOS_FUNCTION T broadcast(T const& x, int source) const {
    return word_by_word(x, [=](unsigned word) {
#if defined(__CUDA_ARCH__)
      return __shfl_sync(~0u, word, source);
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

}  // namespace kfuse::cuda

namespace kfuse::impl {
template <class Team>
struct LanesOf;
template <>
struct LanesOf<Kokkos::TeamPolicy<Kokkos::Cuda>::member_type>
    : cuda::Lanes<Kokkos::TeamPolicy<Kokkos::Cuda>::member_type> {
  using Lanes::Lanes;
};
}  // namespace kfuse::impl

#endif
