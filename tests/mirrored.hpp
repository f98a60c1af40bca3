// SPDX-License-Identifier: Apache-2.0
// A stage of a user's own that looks at another place of the row, for one value at a time:
//   x(c) - x(columns - 1 - c)
#ifndef KFUSE_TESTS_MIRRORED_HPP
#define KFUSE_TESTS_MIRRORED_HPP

#include <kfuse/core/chain.hpp>

namespace user {

struct MinusMirrored {
  using stage = kfuse::PairStage;
  int columns;
  int granularity() const { return 1; }
  template <int width>
  KOKKOS_FUNCTION kfuse::Place partner(kfuse::Place at) const {
    return {at.row, columns - 1 - at.column};
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, X const& other, kfuse::Place) const {
    for (int i = 0; i < X::width; ++i) x[i] -= other[i];
  }
};

}  // namespace user

#endif
