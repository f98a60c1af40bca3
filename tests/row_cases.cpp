// SPDX-License-Identifier: Apache-2.0
// What is true of every row operator, whatever it computes: what it computes is tested by files of their own.
#include <kfuse/core/device.hpp>
#include <kfuse/core/ledger.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "row_memory.hpp"
#include "row_operators.hpp"

namespace {

using namespace kfuse::test;
using kfuse::bf16;

constexpr bool on_host = kfuse::impl::Backend<Space>::is_host;

std::vector<double> results(RowOperator const& run, Part const& part, Memory const& memory = Guarded()) {
  Arguments a(Space(), part, memory);
  run(a);
  return a.results();
}

// The results of some of `rows` rows.
std::vector<double> rows_in(std::vector<double> const& all, int rows, int first, int count) {
  auto const width = std::ptrdiff_t(all.size()) / rows;
  return {all.begin() + first * width, all.begin() + (first + count) * width};
}
bool same(std::vector<double> const& a, std::vector<double> const& b) {
  return a.size() == b.size() && same_values(a.data(), b.data(), a.size());
}
bool has_nan(std::vector<double> const& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

}  // namespace

// CASES P06, P07, P10
TEST_CASE("rows of any width have the same bits wherever they lie, alone and among others") {
  constexpr int widths[] = {1,   2,   3,   5,   7,   8,   15,  16,  17,  31,   33,   48,   63,   64,   65,   100,
                            127, 129, 255, 257, 320, 511, 513, 640, 781, 1000, 1023, 1025, 1408, 2816, 3584, 4097};
  for (RowOperator const& run : row_operators()) {
    for (int const columns : widths) {
      CAPTURE(run.name);
      CAPTURE(columns);
      Guarded const packed;
      Arguments a(Space(), {0, 5, columns}, packed);
      run(a);
      auto const all = a.results();
      CHECK(!has_nan(all));
      CHECK(packed.intact());
      CHECK(a.inputs_unchanged());
      for (Place2D const place : {Place2D{1, 0}, Place2D{0, 8}, Place2D{3, 5}}) {
        Guarded const elsewhere(place);
        CHECK(same(results(run, {0, 2, columns}, elsewhere), rows_in(all, 5, 0, 2)));
        CHECK(elsewhere.intact());
      }
      if (!run.knows_row) CHECK(same(results(run, {3, 2, columns}), rows_in(all, 5, 3, 2)));
      if (!run.knows_row) CHECK(same(results(run, {2, 1, columns}), rows_in(all, 5, 2, 1)));
    }
  }
}

// CASES P08
TEST_CASE("very wide rows have the same bits in other places, and alone") {
  for (RowOperator const& run : row_operators()) {
    for (int const columns : {16384, 32768, 65536, 131072}) {
      CAPTURE(run.name);
      CAPTURE(columns);
      auto const both = results(run, {0, 2, columns});
      CHECK(!has_nan(both));
      CHECK(same(results(run, {0, 2, columns}, Guarded({1, 3})), both));
      CHECK(same(results(run, {0, 1, columns}), rows_in(both, 2, 0, 1)));
    }
  }
}
TEST_CASE("the first and the last of very many rows are as they are alone") {
  for (RowOperator const& run : row_operators()) {
    for (int const rows : {65535, 65536, 70000, 131073}) {
      CAPTURE(run.name);
      CAPTURE(rows);
      auto const all = results(run, {0, rows, 4});
      CHECK(!has_nan(all));
      CHECK(same(results(run, {0, 70, 4}), rows_in(all, rows, 0, 70)));
      if (run.knows_row) continue;
      for (int const row : {65534, rows - 1}) CHECK(same(results(run, {row, 1, 4}), rows_in(all, rows, row, 1)));
    }
  }
}

namespace {

void check_first_and_last(RowOperator const& run, int rows, int columns, Memory const& memory) {
  Arguments a(Space(), {0, rows, columns}, memory, {0, rows - 1});
  run(a);
  CHECK(same(a.results(), results(run, {0, 2, columns})));
}

}  // namespace

// CASES P05
TEST_CASE("rows more than 2^31 elements apart are reached") {
  try {
    Far far;
    for (RowOperator const& run : row_operators())
      for (int const columns : {4, 500, 4096}) {
        CAPTURE(run.name);
        CAPTURE(columns);
        far.clear();
        check_first_and_last(run, 2, columns, [&](Asked const& m) { return far(m); });
      }
  } catch (TooLittleMemory const& error) {
    MESSAGE("too little memory for ", error.bytes, " bytes");
  }
}
TEST_CASE("matrices of more than 2^31 elements are right at both ends") {
  if (on_host) return;  // minutes
  for (RowOperator const& run : row_operators()) {
    if (run.knows_row) continue;
    for (auto const& [rows, columns] : {std::pair(524289, 4096), std::pair(8388624, 256)}) {
      CAPTURE(run.name);
      CAPTURE(columns);
      try {
        check_first_and_last(run, rows, columns, Whole());
      } catch (TooLittleMemory const& error) {
        MESSAGE("too little memory for ", error.bytes, " bytes");
      }
    }
  }
}

// CASES P09
TEST_CASE("nothing is launched for no rows or no columns, and the next call is right") {
  Memory const nowhere = [](Asked const& m) { return Lie{nullptr, m.columns}; };
  for (RowOperator const& run : row_operators()) {
    CAPTURE(run.name);
    auto const expected = results(run, {0, 3, 8});
    for (Part const part : {Part{0, 0, 8}, Part{0, 3, 0}, Part{0, 0, 0}}) {
      Guarded const guarded;
      Arguments a(Space(), part,
                  [&](Asked const& m) { return m.rows == 0 || m.columns == 0 ? nowhere(m) : guarded(m); });
      kfuse::Ledger const ledger;
      auto const error = error_of([&] { run(a); });
      CHECK((error.empty() || part.columns == 0));  // some have no result without columns
      CHECK(ledger.launches() == 0);
      CHECK(guarded.intact());
    }
    CHECK(same(results(run, {0, 3, 8}), expected));
  }
}

namespace {

// Calls f(input, output) for each pair of them.
template <class F>
void for_pairs(Arguments const& a, F const& f) {
  for (auto const& [i, input] : a.asked())
    for (auto const& [o, output] : a.asked())
      if (!input.first.written && output.first.written) f(input.first, output.first);
}

}  // namespace

// CASES P11
TEST_CASE("an output on an input is refused, or has the bits it has elsewhere") {
  for (RowOperator const& run : row_operators()) {
    for (int const columns : {8, 600, 5000}) {
      CAPTURE(run.name);
      CAPTURE(columns);
      Part const part{0, 7, columns};
      Arguments apart(Space(), part, Guarded());
      run(apart);
      for_pairs(apart, [&](Asked const& input, Asked const& output) {
        std::string const onto{output.name, ' ', 'o', 'n', ' ', input.name};
        CAPTURE(onto);
        bool const alike = input.rows > 1 && input.rows == output.rows && input.row_bytes() == output.row_bytes();
        for (int const rows : {0, 1}) {
          Arguments a(Space(), part, OnTop(input, output, rows));
          auto const error = error_of([&] { run(a); });
          if (rows == 1 && alike) CHECK(!error.empty());
          if (error.empty()) {
            CHECK(same(a.results(), apart.results()));
          } else {
            CHECK(contains(error, run.label() + ": "));
            CHECK(contains(error, "overlap"));
            CHECK(a.inputs_unchanged());
          }
        }
      });
    }
  }
}

// CASES P07
TEST_CASE("values that are not side by side are refused, whichever argument they are") {
  for (RowOperator const& run : row_operators()) {
    CAPTURE(run.name);
    Part const part{0, 3, 8};
    Arguments whole(Space(), part, Guarded());
    run(whole);
    for (auto const& [letter, of_whole] : whole.asked()) {
      CAPTURE(std::string(1, letter));
      Guarded const guarded;
      Arguments a(Space(), part, [&, letter = letter](Asked m) {
        if (m.name != letter) return guarded(m);
        m.columns *= 2;
        Lie const lie = guarded(m);
        return Lie{lie.data, lie.stride, 2};
      });
      auto const error = error_of([&] { run(a); });
      CHECK(contains(error, run.label() + ": "));
      CHECK(contains(error, "not contiguous"));
      CHECK(a.inputs_unchanged());
    }
  }
}

namespace {

using Bytes = Kokkos::View<std::uint8_t*, Space>;

auto bytes_of(Lie const& lie, std::size_t first, std::size_t count) {
  return Kokkos::View<std::uint8_t*, Space, Kokkos::MemoryUnmanaged>(static_cast<std::uint8_t*>(lie.data) + first,
                                                                     count);
}

}  // namespace

TEST_CASE("a row of NaNs spoils no other") {
  for (RowOperator const& run : row_operators()) {
    for (int const columns : {1, 8, 100, 4097, 33000}) {
      CAPTURE(run.name);
      CAPTURE(columns);
      Arguments a(Space(), {0, 5, columns}, Guarded());
      run(a);
      auto const before = a.results();
      for (auto const& [letter, known] : a.asked())
        if (auto const& m = known.first; !m.written && m.rows == 5 && m.element_bytes == sizeof(bf16))
          Kokkos::deep_copy(bytes_of(known.second, 2 * m.row_bytes(), m.row_bytes()), std::uint8_t(0xff));
      run(a);
      CHECK(same(rows_in(a.results(), 5, 0, 2), rows_in(before, 5, 0, 2)));
      CHECK(same(rows_in(a.results(), 5, 3, 2), rows_in(before, 5, 3, 2)));
    }
  }
}

// CASES P49
TEST_CASE("an operator comes after what its instance was given before") {
  Space const space = another_instance();
  auto const large = view_of<float>(random_values<float>(1 << 20, 1), 1 << 20);
  for (RowOperator const& run : row_operators()) {
    CAPTURE(run.name);
    Arguments a(space, {0, 37, 1000}, Guarded());
    run(a);
    auto const expected = a.results();
    std::vector<std::pair<Lie, Bytes>> saved;
    for (auto const& [letter, known] : a.asked()) {
      auto const memory = bytes_of(known.second, 0, std::size_t(known.first.rows) * known.first.row_bytes());
      Bytes const copy("kfuse::test::saved", memory.size());
      Kokkos::deep_copy(copy, memory);
      if (!known.first.written) saved.emplace_back(known.second, copy);
      Kokkos::deep_copy(memory, std::uint8_t(known.first.element_bytes == sizeof(bf16) ? 0xff : 0));
    }
    Kokkos::fence("kfuse::test: the inputs are spoiled");
    for (int i = 0; i < (on_host ? 1 : 200); ++i)  // what takes a while
      kfuse::copy_bytes(space, large.data() + (1 << 19), large.data(), std::size_t(1) << 21);
    for (auto const& [lie, copy] : saved) kfuse::copy_bytes(space, lie.data, copy.data(), copy.size());
    run(a);
    space.fence("kfuse::test: the operator is done");
    CHECK(same(a.results(), expected));
  }
}
