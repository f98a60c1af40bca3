// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/swiglu.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "gates.hpp"

namespace {

using kfuse::bf16;
using kfuse::fp16;
using kfuse::GateLayout;
using namespace kfuse::test;

// x / (1 + exp(-x)), and its limit
long double silu(long double x) {
  return std::isinf(x) && x < 0 ? 0 : x / (1 + std::exp(-x));
}

struct SwiGlu {
  template <class X, class Y>
  void operator()(Space const& space, X const& gate_up, Y const& y, GateLayout layout) const {
    kfuse::swiglu(space, gate_up, y, {.layout = layout});
  }
  template <class G, class U, class Y>
  void operator()(Space const& space, G const& gate, U const& up, Y const& y) const {
    kfuse::swiglu(space, gate, up, y);
  }
};

TEST_CASE_TEMPLATE("swiglu agrees with its definition in double", Element, double, float, bf16, fp16) {
  check_agreement<Element>(SwiGlu(), silu);
}

TEST_CASE("swiglu is right on 2,000 random shapes") {
  check_random_cases("swiglu", SwiGlu(), silu);
}

// CASES P30
TEST_CASE("the gate is the first half, not the second, and every other value only where the layout says so") {
  auto const x = view_of<float>({1, 2, 3, 4}, 1, 4), y = view_of_nans<float>(1, 2);
  kfuse::swiglu(Space(), x, y);
  CHECK(deviation(download(y), {2.193175736, 7.046376624}) <= 1e-6);
  kfuse::swiglu(Space(), x, y, {.layout = GateLayout::interleaved});
  CHECK(deviation(download(y), {1.462117157, 11.43088952}) <= 1e-6);
}

TEST_CASE("swiglu gives the same bits of one matrix and of two, also in place") {
  check_forms(SwiGlu());
}

// A pack of 16 bytes of gates and ups lies on 8 where a pack of values does.
TEST_CASE("interleaved gates of 8 bits are right wherever they lie") {
  int const rows = 3, columns = 64, stride = 2 * columns + 8;
  auto const values = random_values<float>(rows * stride + 16, 5);
  auto const x = view_of<kfuse::fp8_e4m3>(values, int(values.size()));
  auto const stored = download(x);
  for (int const shift : {0, 1, 4, 8, 16}) {
    CAPTURE(shift);
    auto const y = view_of_nans<float>(rows, columns);
    kfuse::Tensor<kfuse::fp8_e4m3 const, 2> const gates{x.data() + shift, {rows, 2 * columns}, {stride, 1}};
    kfuse::swiglu(Space(), gates, y, {.layout = GateLayout::interleaved});
    std::vector<double> expected;
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c) {
        double const* const pair = stored.data() + shift + r * stride + 2 * c;
        expected.push_back(silu(pair[0]) * pair[1]);
      }
    CHECK(deviation(download(y), expected) <= 1e-5);
  }
}

TEST_CASE("swiglu of nothing writes nothing, and element types may differ") {
  check_other_arguments(SwiGlu(), silu);
}

TEST_CASE("swiglu refuses an odd width and shapes that do not fit, and writes nothing") {
  check_refusals("kfuse::swiglu", SwiGlu());
}

TEST_CASE("swiglu moves its arguments once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 128}, {128, 1}}, y{nullptr, {10, 64}, {64, 1}};
  auto const halves = kfuse::swiglu_traffic(Space(), x, y);
  CHECK(halves.bytes_read == 10 * 128 * 2);
  CHECK(halves.bytes_written == 10 * 64 * 2);
  CHECK(kfuse::swiglu_traffic(Space(), x, y, {.layout = GateLayout::interleaved}) == halves);
  CHECK(kfuse::swiglu_traffic(Space(), y, y, y) == halves);
}

}  // namespace
