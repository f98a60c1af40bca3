// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/reglu.hpp>

#include <doctest/doctest.h>

#include <vector>

#include "gates.hpp"

namespace {

using kfuse::bf16;
using kfuse::fp16;
using kfuse::GateLayout;
using namespace kfuse::test;

// max(x, 0), and NaN of NaN
long double relu(long double x) {
  return x < 0 ? 0 : x;
}

struct ReGlu {
  template <class X, class Y>
  void operator()(Space const& space, X const& gate_up, Y const& y, GateLayout layout) const {
    kfuse::reglu(space, gate_up, y, {.layout = layout});
  }
  template <class G, class U, class Y>
  void operator()(Space const& space, G const& gate, U const& up, Y const& y) const {
    kfuse::reglu(space, gate, up, y);
  }
};

TEST_CASE_TEMPLATE("reglu agrees with its definition in double", Element, double, float, bf16, fp16) {
  check_agreement<Element>(ReGlu(), relu);
}

TEST_CASE("reglu is right on 2,000 random shapes") {
  check_random_cases("reglu", ReGlu(), relu);
}

// CASES P30
TEST_CASE("reglu's gate is the first half, or every other value where the layout says so") {
  auto const x = view_of<float>({-1, 2, 3, 4}, 1, 4), y = view_of_nans<float>(1, 2);
  kfuse::reglu(Space(), x, y);
  CHECK(download(y) == std::vector<double>{0, 8});
  kfuse::reglu(Space(), x, y, {.layout = GateLayout::interleaved});
  CHECK(download(y) == std::vector<double>{0, 12});
}

TEST_CASE("reglu gives the same bits of one matrix and of two, also in place") {
  check_forms(ReGlu());
}

TEST_CASE("reglu of nothing writes nothing, and element types may differ") {
  check_other_arguments(ReGlu(), relu);
}

TEST_CASE("reglu refuses an odd width and shapes that do not fit, and writes nothing") {
  check_refusals("kfuse::reglu", ReGlu());
}

TEST_CASE("reglu moves its arguments once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 128}, {128, 1}}, y{nullptr, {10, 64}, {64, 1}};
  CHECK(kfuse::reglu_traffic(Space(), x, y).bytes_read == 10 * 128 * 2);
  CHECK(kfuse::reglu_traffic(Space(), x, y, {.layout = GateLayout::interleaved}).bytes_written == 10 * 64 * 2);
  CHECK(kfuse::reglu_traffic(Space(), y, y, y).bytes() == 3 * 10 * 64 * 2);
}

}  // namespace
