// SPDX-License-Identifier: Apache-2.0
// The lane maps of the GPUs' matrix fragments, and attention on them, over models of the vendors' instructions.
#include <doctest/doctest.h>

#include <cmath>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "attention_lanes.hpp"
#include "fragment.hpp"
#include "planted_faults.hpp"
#include "simulated_instructions.hpp"

namespace {

using kfuse::bf16;
using kfuse::Causal;
using kfuse::fp16;
using namespace kfuse::test;

template <class Element>
std::vector<Element> encoded(Matrix const& x) {
  std::vector<Element> y;
  for (double v : x) y.push_back(encode<Element>(v));
  return y;
}
template <class Element>
Matrix decoded(std::vector<Element> const& x) {
  Matrix y;
  for (Element v : x) y.push_back(decode(v));
  return y;
}

template <class Unit, class Element, int dims>
VerbsResult run_verbs(Matrix const& x, Matrix const& y, int columns, typename Unit::Space const& space) {
  auto const x_tile = encoded<Element>(x), y_tile = encoded<Element>(y);
  std::vector<float> results(verbs * block * block, NAN);
  std::vector<Element> moved(tile_height * dims);
  using Kernel = VerbsKernel<Unit, Element, dims>;
  kfuse::impl::launch(space, "test::fragment", 1, Kernel::scratch_bytes,
                      Kernel{x_tile.data(), y_tile.data(), columns, results.data(), moved.data()});
  return {decoded(results), decoded(moved)};
}

TEST_CASE_TEMPLATE("fragments have the lane maps that the vendors publish", Unit, Mma, Mfma, Wmma) {
  auto const check = [](auto element, auto width, int columns) {
    using Element = decltype(element);
    constexpr int dims = width();
    Matrix const x = integers(tile_height * dims, 1, 2), y = integers(tile_height * dims, 2, 2);
    for (Copies const copies : {Copies::at_once, Copies::when_awaited}) {
      using Space = typename Unit::Space;
      auto const work = [&](Space const& space) { return run_verbs<Unit, Element, dims>(x, y, columns, space); };
      check_verbs(in_both_orders<Space>(work, {.copies = copies}), expected_verbs<dims>(x, y, columns));
    }
  };
  check(bf16(), std::integral_constant<int, 64>(), 64);
  check(bf16(), std::integral_constant<int, 128>(), 120);
  check(fp16(), std::integral_constant<int, 64>(), 56);
}

TEST_CASE_TEMPLATE("attention on matrix instructions is right on lanes", Unit, Mma, Mfma, Wmma) {
  using Space = typename Unit::Space;
  auto const check = [](auto element, Problem const& p, Copies copies) {
    using Element = decltype(element);
    auto const attended = in_both_orders<Space>(
        [&](Space const& space) {
          AttentionCall<Element> call(p);
          kfuse::impl::launch_attention_tiles<Unit>(space, "test::attention", call.task());
          return call.result();
        },
        {.copies = copies});
    CHECK(largest_error(attended, reference(p)) <= bound<Element>);
  };
  check(bf16(), shared_keys<bf16>(20, 90, 40, Causal::no, false), Copies::at_once);
  check(bf16(), shared_keys<bf16>(40, 33, 64, Causal::yes, false), Copies::when_awaited);
  check(bf16(), shared_keys<bf16>(20, 90, 64, Causal::yes, true), Copies::at_once);
  check(bf16(), shared_keys<bf16>(20, 90, 96, Causal::no, true), Copies::when_awaited);
}

// What planted faults give. A fragment whose lanes take themselves for their neighbours:
template <class Unit>
struct NextLane : Unit {
  template <class Element>
  struct Fragment : Unit::template Fragment<Element> {
    KOKKOS_FUNCTION explicit Fragment(int rank) : Unit::template Fragment<Element>(rank + 1) {}
  };
};
// and copies that nobody waits for.
struct ForgottenCopy : SimulatedCopy {
  KOKKOS_INLINE_FUNCTION static void wait() {}
};
template <class Unit>
struct Forgetful : Unit {
  using AsyncCopy = ForgottenCopy;
};

template <class Unit>
bool is_right(Copies copies) {
  Matrix const x = integers(tile_height * 64, 1, 2), y = integers(tile_height * 64, 2, 2);
  try {
    return run_verbs<Unit, bf16, 64>(x, y, 64, {.copies = copies}) == expected_verbs<64>(x, y, 64);
  } catch (std::logic_error const&) {
    return false;
  }
}
TEST_CASE_TEMPLATE("a wrong lane map and a copy that is not awaited are seen", Unit, Mma, Mfma, Wmma) {
  CHECK(is_right<Unit>(Copies::when_awaited));
  CHECK(!is_right<NextLane<Unit>>(Copies::when_awaited));
  CHECK(!is_right<Forgetful<Unit>>(Copies::when_awaited));
}

TEST_CASE_TEMPLATE("every barrier of attention on matrix instructions is missed", Unit, Mma, Mfma, Wmma) {
  using Space = typename Unit::Space;
  auto const check = [](int keys, int number) {
    auto const p = random<bf16>({.s = {1, 1, 1, 40, keys, 64}, .lengths = {keys - 8}});
    auto const work = [&](Space const& space) {
      AttentionCall<bf16> call(p);
      kfuse::impl::launch_attention_tiles<Unit>(space, "test::attention", call.task());
      return call.result();
    };
    CAPTURE(keys);
    CAPTURE(number);
    for (Copies const copies : {Copies::at_once, Copies::when_awaited})
      CHECK(seen<Space>(work, {Fault::missing_barrier, number}, {.copies = copies}) != "");
  };
  // One at each step; one when the output is in its tile.
  int const steps = 3;
  for (int const number : {0, 1, 2, steps + 1}) check(steps * Unit::tile_keys, number);
  // Without keys, one when the queries are in the tile that the output takes.
  check(8, 0);
}

}  // namespace
