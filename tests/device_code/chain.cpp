// SPDX-License-Identifier: Apache-2.0
// A chain as users write them: with stages of their own, and element types that differ.
#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include "arguments.hpp"

namespace {

struct Square {
  using stage = kfuse::ElementStage;
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, kfuse::Place) const {
    for (auto& v : x) v *= v;
  }
};

// x = x / (the row's sum)
struct Normalize {
  using stage = kfuse::RowStage;
  template <class Real>
  KOKKOS_FUNCTION Real identity() const {
    return 0;
  }
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(Real& sum, X const& x, kfuse::Place) const {
    for (auto v : x) sum += v;
  }
  template <class Real>
  KOKKOS_FUNCTION void merge(Real& sum, Real other) const {
    sum += other;
  }
  template <class Real>
  KOKKOS_FUNCTION Real finish(Real sum, int) const {
    return 1 / sum;
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, kfuse::Place, typename X::Real factor) const {
    for (auto& v : x) v *= factor;
  }
};

}  // namespace

void device_code(AllArguments const& arguments) {
  auto const& [bf16, fp32, fp64] = arguments;
  kfuse::fuse(bf16.space, "user::widen", kfuse::load(bf16.matrix) | Square() | kfuse::store(fp32.matrix));
  kfuse::fuse(bf16.space, "user::double",
              kfuse::load(fp64.matrix) | Square() | Normalize() | kfuse::store(fp64.matrix));
}
