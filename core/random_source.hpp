// SPDX-License-Identifier: Apache-2.0
// RandomSource: which random numbers an operator draws. A RandomState is taken as it is; of a View of one, what its
// memory holds when the kernel runs, so that the replays of a graph can draw new numbers.
#ifndef KFUSE_CORE_RANDOM_SOURCE_HPP
#define KFUSE_CORE_RANDOM_SOURCE_HPP

#include <kfuse/core/check.hpp>
#include <kfuse/core/random.hpp>
#include <kfuse/core/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace kfuse {

class RandomSource {
 public:
  RandomSource() = default;
  RandomSource(RandomState const& state) : given_(state) {}
  RandomSource(std::uint64_t seed, std::uint64_t offset) : given_{seed, offset} {}
  // In memory that the kernels can read. The View must live until they have run.
  template <class View>
  requires Kokkos::is_view_v<View> RandomSource(View const& state)
      : state_(state.data()), reached_(impl::ReachedFrom::spaces_of<View>()) {
    static_assert(View::rank() == 0 && std::is_same_v<typename View::non_const_value_type, RandomState>,
                  "kfuse: random numbers are those of a RandomState, or of a View<RandomState> of rank 0");
  }

  KOKKOS_FUNCTION RandomState operator()() const { return state_ != nullptr ? *state_ : given_; }
  // Where the state is read when the kernel runs; null if it is known.
  RandomState const* memory() const { return state_; }

  // Throws kfuse::Error if kernels that run in Space cannot reach that memory.
  template <class Space>
  void check(std::string_view where) const {
    impl::check(reached_.template from<Space>(), where,
                "random: the execution space cannot reach the memory of the state (the kernel would fault where it "
                "reads it); give it a View in the execution space's memory or in pinned host memory, or a RandomState");
  }

 private:
  RandomState given_;
  RandomState const* state_ = nullptr;
  impl::ReachedFrom reached_;
};

}  // namespace kfuse

#endif
