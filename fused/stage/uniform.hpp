// SPDX-License-Identifier: Apache-2.0
// uniform(...): random values in [low, high), the same on every device. A chain may begin with it.
#ifndef KFUSE_FUSED_STAGE_UNIFORM_HPP
#define KFUSE_FUSED_STAGE_UNIFORM_HPP

#include <kfuse/core/chain.hpp>
#include <kfuse/core/random.hpp>

namespace kfuse {

struct Uniform {
  using stage = ElementStage;
  static constexpr int flops = 2;
  static constexpr int extra_registers = 8;

  Shape size;
  float low, high;
  RandomState state;

  Shape shape() const { return size; }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    for (int i = 0; i < X::width; ++i) {
      int const column = at.column + i;
      std::uint32_t const word = random_quad(state, at.row, column / 4).at(column % 4);
      float const value = backend::add((high - low) * (float(word >> 8) * 0x1p-24f), low);  // 24 bits: exact in float
      x[i] = value < high ? value : low;                                                    // rounding may reach high
    }
  }
};

inline Uniform uniform(std::ptrdiff_t rows, int columns, float low, float high, RandomState const& state) {
  return {{rows, columns}, low, high, state};
}

}  // namespace kfuse

#endif
