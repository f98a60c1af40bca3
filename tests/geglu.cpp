// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/geglu.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "gates.hpp"

namespace {

using kfuse::bf16;
using kfuse::fp16;
using kfuse::GateLayout;
using kfuse::GeluApproximate;
using namespace kfuse::test;

// x Phi(x) = x / 2 (1 + erf(x / sqrt(2))), without cancellation, and its limit
long double gelu(long double x) {
  return std::isinf(x) && x < 0 ? 0 : x / 2 * std::erfc(-x / std::sqrt(2.0L));
}
// x / 2 (1 + tanh(u)) = x / (1 + exp(-2 u)), without cancellation, and its limit
long double gelu_tanh(long double x) {
  if (std::isinf(x)) return x < 0 ? 0 : x;
  return x / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi_v<long double>) * (x + 0.044715L * x * x * x)));
}

template <GeluApproximate approximate>
struct GeGlu {
  template <class X, class Y>
  void operator()(Space const& space, X const& gate_up, Y const& y, GateLayout layout) const {
    kfuse::geglu(space, gate_up, y, {.layout = layout, .approximate = approximate});
  }
  template <class G, class U, class Y>
  void operator()(Space const& space, G const& gate, U const& up, Y const& y) const {
    kfuse::geglu(space, gate, up, y, approximate);
  }
};
using ByErf = GeGlu<GeluApproximate::none>;
using ByTanh = GeGlu<GeluApproximate::tanh>;

TEST_CASE_TEMPLATE("geglu agrees with its definition in double", Element, double, float, bf16, fp16) {
  check_agreement<Element>(ByErf(), gelu);
  check_agreement<Element>(ByTanh(), gelu_tanh);
}

TEST_CASE("geglu is right on 2,000 random shapes") {
  check_random_cases("geglu", ByErf(), gelu);
}
TEST_CASE("geglu by tanh is right on 2,000 random shapes") {
  check_random_cases("geglu by tanh", ByTanh(), gelu_tanh);
}

// CASES P30
TEST_CASE("geglu's gate is the first half, or every other value where the layout says so") {
  auto const x = view_of<float>({1, 2, 3, 4}, 1, 4), y = view_of_nans<float>(1, 2);
  kfuse::geglu(Space(), x, y);
  CHECK(deviation(download(y), {2.524034238, 7.817998944}) <= 1e-6);
  kfuse::geglu(Space(), x, y, {.layout = GateLayout::interleaved});
  CHECK(deviation(download(y), {1.682689492, 11.98380123}) <= 1e-6);
}

// CASES P29
TEST_CASE("the two kinds of gelu are told apart") {
  auto const x = view_of<float>({1, -1, 3, -3}, 1, 4), ones = view_of<float>({1, 1, 1, 1}, 1, 4);
  auto const y = view_of_nans<float>(1, 4);
  kfuse::geglu(Space(), x, ones, y);
  CHECK(deviation(download(y), {0.841344746, -0.158655254, 2.995950306, -0.00404969410}) <= 1e-6);
  kfuse::geglu(Space(), x, ones, y, GeluApproximate::tanh);
  CHECK(deviation(download(y), {0.841191991, -0.158808009, 2.996362608, -0.00363739208}) <= 1e-6);
}

TEST_CASE("geglu gives the same bits of one matrix and of two, also in place") {
  check_forms(ByErf());
  check_forms(ByTanh());
}

TEST_CASE("geglu of nothing writes nothing, and element types may differ") {
  check_other_arguments(ByErf(), gelu);
  check_other_arguments(ByTanh(), gelu_tanh);
}

TEST_CASE("geglu refuses an odd width and shapes that do not fit, and writes nothing") {
  check_refusals("kfuse::geglu", ByErf());
  check_refusals("kfuse::geglu", ByTanh());
  auto const x = view_of<float>({1, 2}, 1, 2), y = view_of_nans<float>(1, 1);
  CHECK(contains(error_of([&] { kfuse::geglu(Space(), x, y, {.approximate = GeluApproximate(7)}); }),
                 "kfuse::geglu: options.approximate: there is none with the number 7"));
}

TEST_CASE("geglu moves its arguments once") {
  kfuse::Tensor<bf16, 2> const x{nullptr, {10, 128}, {128, 1}}, y{nullptr, {10, 64}, {64, 1}};
  for (auto const approximate : {GeluApproximate::none, GeluApproximate::tanh}) {
    CHECK(kfuse::geglu_traffic(Space(), x, y, {.approximate = approximate}).bytes() == 3 * 10 * 64 * 2);
    CHECK(kfuse::geglu_traffic(Space(), y, y, y, approximate).bytes() == 3 * 10 * 64 * 2);
  }
}

}  // namespace
