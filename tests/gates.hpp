// SPDX-License-Identifier: Apache-2.0
// What the tests of swiglu, geglu and reglu share. A gate is given as two callables:
//   gate(space, gate_up, y, layout), gate(space, gate, up, y)   the operator
//   activation(x)                                               its activation, in long double: the tails count
#ifndef KFUSE_TESTS_GATES_HPP
#define KFUSE_TESTS_GATES_HPP

#include <kfuse/fused/stage/gate.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "random_cases.hpp"
#include "support.hpp"

namespace kfuse::test {

// The definition: y = activation(gate) * up.
template <class F>
std::vector<double> gated(std::vector<double> const& gate, std::vector<double> const& up, F const& activation) {
  std::vector<double> y(gate.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = activation(gate[i]) * up[i];
  return y;
}

// Rows that hold both.
inline std::vector<double> packed(std::vector<double> const& gate, std::vector<double> const& up, int n,
                                  GateLayout layout) {
  std::vector<double> rows(2 * gate.size());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    std::size_t const row = i / n * 2 * n, c = i % n;
    bool const halves = layout == GateLayout::halves;
    rows[row + (halves ? c : 2 * c)] = gate[i];
    rows[row + (halves ? n + c : 2 * c + 1)] = up[i];
  }
  return rows;
}

template <class Element, class Gate, class F>
void check_agreement(Gate const& run, F const& activation) {
  Space const space = another_instance();
  int const rows = 3;
  for (int const n : {1, 7, 64, 160, 320, 640, 1408, 2816, 14336, 70001})
    for (GateLayout const layout : {GateLayout::halves, GateLayout::interleaved})
      for (Place2D const place : {Place2D{0, 0}, Place2D{1, 3}}) {
        CAPTURE(n);
        CAPTURE(int(layout));
        CAPTURE(place.shift);
        auto const gate = random_values<Element>(std::size_t(rows) * n, n, -6, 6);
        auto const up = random_values<Element>(std::size_t(rows) * n, n + 1, -6, 6);
        auto const x = packed(gate, up, n, layout);
        GuardedMatrix<Element> const in(rows, 2 * n, x, place), out(rows, n, place);
        run(space, in.const_view(), out.view(), layout);
        CHECK(deviation(out.values(), gated(gate, up, activation)) <= tolerance<Element>());
        CHECK(out.guards_intact());
        CHECK(in.values() == x);
      }
}

// Where activations vanish, the error of what they vanish by is relative to their argument in wider types; 16-bit
// results are right to one unit in the last place, however small.
template <class Element>
std::vector<double> scales_of(std::vector<double> const& gate, std::vector<double> const& up, int n) {
  if (sizeof(Element) == 2) return {};
  std::vector<double> scales(gate.size() / n, 0);
  for (std::size_t i = 0; i < gate.size(); ++i)
    if (std::isfinite(gate[i] * up[i])) scales[i / n] = std::max(scales[i / n], std::abs(gate[i] * up[i]));
  return scales;
}

// All three forms, one in each case.
template <class Gate, class F>
void check_random_cases(char const* name, Gate const& run, F const& activation) {
  Space const space = another_instance();
  for_random_cases(name, {.widest = 35000}, [&]<class Element>(RandomCase& c) {
    auto const gate = c.values<Element>(0), up = c.values<Element>(1);
    auto const out = c.matrix<Element>(2);
    auto const y_of = [&](auto const& call) {
      call(0, c.rows, out.view());
      c.compare("y", out, gated(gate, up, activation), scales_of<Element>(gate, up, c.columns));
      c.same_bits("y", [&](int first, int count) {
        auto const y = view_of_nans<Element>(count, c.columns);
        call(first, count, y);
        return elements(y);
      });
    };
    if (c.seed % 3 == 0) {
      auto const g = c.matrix<Element>(0, gate), u = c.matrix<Element>(1, up);
      y_of([&](int first, int count, auto const& y) {
        run(space, rows_of(g, first, count), rows_of(u, first, count), y);
      });
      c.unchanged("gate", g, gate);
      c.unchanged("up", u, up);
    } else {
      GateLayout const layout = c.seed % 3 == 1 ? GateLayout::halves : GateLayout::interleaved;
      auto const both = packed(gate, up, c.columns, layout);
      GuardedMatrix<Element> const in(c.rows, 2 * c.columns, both, c.place(0));
      y_of([&](int first, int count, auto const& y) { run(space, rows_of(in, first, count), y, layout); });
      c.unchanged("gate_up", in, both);
    }
  });
}

// One matrix in either layout, two matrices, and the gate or the up in place: the same bits.
template <class Gate>
void check_forms(Gate const& run) {
  for (int const n : {7, 1408}) {
    int const rows = 4;
    auto const gate = random_values<bf16>(std::size_t(rows) * n, n), up = random_values<bf16>(std::size_t(rows) * n, 1);
    auto const g = view_of<bf16>(gate, rows, n), u = view_of<bf16>(up, rows, n), two = view_of_nans<bf16>(rows, n);
    run(Space(), g, u, two);
    for (GateLayout const layout : {GateLayout::halves, GateLayout::interleaved}) {
      auto const one = view_of_nans<bf16>(rows, n);
      run(Space(), view_of<bf16>(packed(gate, up, n, layout), rows, 2 * n), one, layout);
      CHECK(same_bits(one, two));
    }
    for (int const half : {0, n}) {
      auto const both = view_of<bf16>(packed(gate, up, n, GateLayout::halves), rows, 2 * n);
      run(Space(), both, Kokkos::subview(both, Kokkos::ALL, Kokkos::pair(half, half + n)), GateLayout::halves);
      auto const now = download(both), y = download(two);
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < n; ++c) REQUIRE(now[2 * r * n + half + c] == y[r * n + c]);
    }
    run(Space(), g, u, u);
    CHECK(same_bits(u, two));
  }
}

// CASES P09; and the result in another type than gate and up, which are of two.
template <class Gate, class F>
void check_other_arguments(Gate const& run, F const& activation) {
  for (GateLayout const layout : {GateLayout::halves, GateLayout::interleaved}) {
    run(Space(), view_of_nans<float>(0, 4), view_of_nans<float>(0, 2), layout);
    run(Space(), view_of_nans<float>(4, 0), view_of_nans<float>(4, 0), layout);
    auto const wide = view_of_nans<float>(1, 2);
    run(Space(), view_of<bf16>(packed({1, -2}, {3, 4}, 2, layout), 1, 4), wide, layout);
    CHECK(deviation(download(wide), gated({1, -2}, {3, 4}, activation)) <= 1e-6);
  }
  auto const y = view_of_nans<fp16>(2, 8);
  auto const gate = random_values<bf16>(16, 1), up = random_values<float>(16, 2);
  run(Space(), view_of<bf16>(gate, 2, 8), view_of<float>(up, 2, 8), y);
  CHECK(deviation(download(y), gated(gate, up, activation)) <= tolerance<fp16>());
}

template <class Gate>
void check_refusals(std::string const& label, Gate const& run) {
  auto const y = view_of_nans<float>(2, 2);
  auto const x = view_of<float>(std::vector<double>(12, 1), 2, 6);
  for (GateLayout const layout : {GateLayout::halves, GateLayout::interleaved}) {
    CHECK(contains(error_of([&] { run(Space(), view_of_nans<float>(2, 5), y, layout); }),
                   label + ": gate_up: has 5 columns"));
    CHECK(contains(error_of([&] { run(Space(), x, y, layout); }), label + ": y: shape [2, 2] does not match"));
  }
  CHECK(contains(error_of([&] { run(Space(), y, view_of_nans<float>(3, 2), y); }), label + ": up: shape [3, 2]"));
  CHECK(contains(error_of([&] { run(Space(), x, view_of_nans<float>(2, 3), GateLayout(7)); }),
                 label + ": options.layout: there is none with the number 7"));
  // In interleaved rows no value of y lies where its gate does.
  CHECK(contains(
      error_of([&] { run(Space(), x, Kokkos::subview(x, Kokkos::ALL, Kokkos::pair(0, 3)), GateLayout::interleaved); }),
      label + ": y: overlaps gate_up"));
  for (double const v : download(y)) CHECK(std::isnan(v));
  for (double const v : download(x)) CHECK(v == 1);
}

}  // namespace kfuse::test

#endif
