// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_FUSED_STAGE_IF_GIVEN_HPP
#define KFUSE_FUSED_STAGE_IF_GIVEN_HPP

#include <kfuse/core/chain.hpp>
#include <kfuse/core/evaluate.hpp>

#include <string_view>

namespace kfuse::impl {

// A stage that is there only if its argument is.
template <class S>
struct IfGiven {
  using stage = ElementStage;
  using element = typename S::element;
  static constexpr bool counts = requires { S::flops; };
  static constexpr int flops = counts ? 1 : 0;  // given or not: no more than so many

  S inner;
  bool given;

  auto reads() const requires(!writes_memory<S>) { return spans(inner.reads()); }
  auto writes() const requires(writes_memory<S>) { return spans(inner.writes()); }
  void check(std::string_view where, Shape shape) const {
    if (given) inner.check(where, shape);
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    if (given) impl::apply(inner, x, at);
  }

 private:
  template <class Spans>
  Spans spans(Spans const& all) const {
    return given ? all : Spans{};
  }
};

}  // namespace kfuse::impl

#endif
