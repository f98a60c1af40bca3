// SPDX-License-Identifier: Apache-2.0
// Where the arguments of a row operator lie: what is true of all of them.
#include <kfuse/core/ledger.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "row_cases.hpp"

using namespace kfuse::test;

// CASES P09
TEST_CASE_TEMPLATE("nothing is launched for no rows or no columns, and the next call is right", T, AllBf16, AllDouble,
                   Bf16ToFloat, DoubleToBf16) {
  Memory const nowhere = [](Asked const& m) { return Lie{nullptr, m.columns}; };
  for (RowOperator<T> const& run : row_operators<T>()) {
    CAPTURE(run.name);
    auto const expected = results(run, {0, 3, 8});
    for (Part const part : {Part{0, 0, 8}, Part{0, 3, 0}, Part{0, 0, 0}}) {
      Guarded const guarded;
      Arguments<T> a(Space(), part,
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
template <class T, class F>
void for_pairs(Arguments<T> const& a, F const& f) {
  for (auto const& [i, input] : a.asked())
    for (auto const& [o, output] : a.asked())
      if (input.first.use == Use::read && output.first.use != Use::read) f(input.first, output.first);
}

}  // namespace

// CASES P11
TEST_CASE_TEMPLATE("an output on an input is refused, or has the bits it has elsewhere", T, AllBf16, AllDouble,
                   Bf16ToFloat, DoubleToBf16) {
  for (RowOperator<T> const& run : row_operators<T>()) {
    for (int const columns : {8, 600, 5000}) {
      CAPTURE(run.name);
      CAPTURE(columns);
      Part const part{0, 7, columns};
      Arguments<T> apart(Space(), part, Guarded());
      run(apart);
      for_pairs(apart, [&](Asked const& input, Asked const& output) {
        std::string const onto = output.name + " on " + input.name;
        CAPTURE(onto);
        bool const alike = input.rows > 1 && input.rows == output.rows && input.row_bytes() == output.row_bytes();
        for (int const rows : {0, 1}) {
          Arguments<T> a(Space(), part, OnTop(input, output, rows));
          auto const error = error_of([&] { run(a); });
          if (rows == 1 && alike) CHECK(!error.empty());
          if (error.empty()) {
            CHECK(same(a.results(), apart.results()));
          } else {
            CHECK(contains(error, run.label() + ": "));
            CHECK(contains(error, "overlap"));
            CHECK(contains(error, output.name));
            CHECK(contains(error, input.name));
            if (output.use == Use::written) CHECK(a.inputs_unchanged());
          }
        }
      });
    }
  }
}

// CASES P07
TEST_CASE_TEMPLATE("values that are not side by side are refused, whichever argument they are", T, AllBf16, AllDouble,
                   Bf16ToFloat, DoubleToBf16) {
  for (RowOperator<T> const& run : row_operators<T>()) {
    CAPTURE(run.name);
    Part const part{0, 3, 8};
    Arguments<T> whole(Space(), part, Guarded());
    run(whole);
    for (auto const& [name, of_whole] : whole.asked()) {
      if (of_whole.first.rows == 1 && of_whole.first.columns == 1) continue;  // has no neighbour
      CAPTURE(name);
      Guarded const guarded;
      Arguments<T> a(Space(), part, [&, name = name](Asked m) {
        if (m.name != name) return guarded(m);
        m.columns *= 2;
        Lie const lie = guarded(m);
        return Lie{lie.data, lie.stride, 2};
      });
      auto const error = error_of([&] { run(a); });
      CHECK(contains(error, run.label() + ": " + name + ": the last dimension is not contiguous"));
      CHECK(a.inputs_unchanged());
    }
  }
}

namespace {

// Is it others that are held to the shape of this argument? With another shape, one of those no longer fits.
bool gives_sizes(std::string const& argument) {
  auto const ends = {": x",
                     ": logits",
                     ": gate",
                     ": gate_up",
                     "fold_batchnorm: weight",
                     "embedding: table",
                     "embedding: indices",
                     "rope: q",
                     "rope: positions",
                     "rope_qkv: qkv",
                     "rope_qkv: q",
                     "rope_qkv: k_cache",
                     "top_k: values"};
  return std::any_of(ends.begin(), ends.end(), [&](char const* end) { return argument.ends_with(end); });
}

}  // namespace

TEST_CASE("an argument of a wrong shape is refused by its own name") {
  using T = AllBf16;
  for (RowOperator<T> const& run : row_operators<T>()) {
    CAPTURE(run.name);
    Part const part{0, 3, 8};
    Arguments<T> whole(Space(), part, Guarded());
    run(whole);
    for (auto const& [name, of_whole] : whole.asked())
      for (int const more_rows : {0, 1}) {
        bool const is_table = of_whole.first.rows != part.rows || name == "table";  // or a vector
        if (more_rows > 0 && is_table) continue;
        CAPTURE(name);
        CAPTURE(more_rows);
        Guarded const guarded;
        Arguments<T> a(Space(), part, [&, name = name](Asked m) {
          if (m.name != name) return guarded(m);
          int const more_columns = more_rows > 0 ? 0 : m.columns;
          m.rows += more_rows, m.columns += more_columns;
          Lie const lie = guarded(m);
          return Lie{lie.data, lie.stride, 1, more_rows, more_columns};
        });
        auto const error = error_of([&] { run(a); }), own = run.label() + ": " + name;
        CAPTURE(error);
        if (gives_sizes(own)) {
          CHECK((error.empty() || std::any_of(whole.asked().begin(), whole.asked().end(), [&](auto const& other) {
                   return error.starts_with(run.label() + ": " + other.first + ": ");
                 })));
        } else {
          CHECK(error.starts_with(own + ": "));
        }
        CHECK((error.empty() || a.inputs_unchanged()));
      }
  }
}
