// SPDX-License-Identifier: Apache-2.0
// dropout: drops each value with probability p, and scales those kept by 1 / (1 - p).
//
// Whether a value is dropped depends on p, seed, offset, row and column alone: not on the kernel, the device, or what
// else has run. p = 0 changes nothing, p = 1 leaves exact zeros whatever was there.
#ifndef KFUSE_FUSED_STAGE_DROPOUT_HPP
#define KFUSE_FUSED_STAGE_DROPOUT_HPP

#include <kfuse/core/chain.hpp>
#include <kfuse/core/random.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace kfuse {

template <class Memory = void>
struct Dropout {
  using stage = ElementStage;
  using memory_space = Memory;
  static constexpr int flops = 1;
  static constexpr int extra_registers = 11;  // with fewer, a load and a store beside it spill (sm_90)

  double p;
  RandomState given;
  RandomState const* state;  // overrides `given` if not null
  // A word up to the first drops its value, and what is kept is multiplied by the second: not for kernels to divide.
  std::uint32_t highest_dropped;
  double factor;

  Dropout(double probability, RandomState const& random, RandomState const* random_state)
      : p(probability),
        given(random),
        state(random_state),
        highest_dropped(p > 0 && p <= 1 ? std::uint32_t(std::max(std::ceil(p * 0x1p32), 1.0) - 1) : 0),
        factor(1 / (1 - p)) {}

  void check(std::string_view where, Shape) const {
    impl::check(p >= 0 && p <= 1, where, "dropout: p is the probability to drop a value; it must lie in [0, 1]");
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    using Real = typename X::Real;
    if (p == 0) return;
    RandomState const random = state ? *state : given;
    constexpr int quads = (X::width + 3) / 4;
    for (int q = 0; q < quads; ++q) {
      Philox const words = random_quad(random, at.row, at.column / 4 + q);
      for (int i = 0; i < (X::width < 4 ? X::width : 4); ++i) {
        std::uint32_t const word = words.at(X::width < 4 ? (at.column + i) % 4 : i);
        x[4 * q + i] = word <= highest_dropped ? Real(0) : x[4 * q + i] * Real(factor);
      }
    }
  }
};

inline auto dropout(double p, RandomState const& state) {
  return Dropout<>{p, state, nullptr};
}

// The state is read when the kernel runs: change it between replays to draw new numbers.
template <class View>
requires Kokkos::is_view_v<View>
auto dropout(double p, View const& state) {
  static_assert(View::rank() == 0 && std::is_same_v<typename View::non_const_value_type, RandomState>,
                "kfuse: dropout takes a View<RandomState> of rank 0");
  return Dropout<typename View::memory_space>{p, {}, state.data()};
}

}  // namespace kfuse

#endif
