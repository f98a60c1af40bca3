// SPDX-License-Identifier: Apache-2.0
// An operator against its definition in 2,000 random cases: shapes, element types, places in memory, kinds of values.
//
//   TEST_CASE("rmsnorm is right on 2,000 random shapes") {
//     Space const space = another_instance();
//     for_random_cases("rmsnorm", {}, [&]<class Element>(RandomCase& c) {
//       auto const x = c.values<Element>(0), w = random_values<Element>(c.columns, c.seed);
//       auto const in = c.matrix<Element>(0, x), out = c.matrix<Element>(1);
//       auto const weight = view_of<Element>(w, c.columns);
//       rmsnorm(space, in.const_view(), weight, out.view());
//       c.compare("y", out, reference(x, w));
//       c.unchanged("x", in, x);
//       c.same_bits("y", [&](int first, int count) {
//         auto const y = view_of_nans<Element>(count, c.columns);
//         rmsnorm(space, rows_of(in, first, count), weight, y);
//         return elements(y);
//       });
//     });
//   }
//
// A failure prints its case. KFUSE_CASES=17 runs that one alone, KFUSE_CASES=0-99 the first hundred (a slow checker may
// want fewer), and KFUSE_SEED=1 draws 2,000 others.
#ifndef KFUSE_TESTS_RANDOM_CASES_HPP
#define KFUSE_TESTS_RANDOM_CASES_HPP

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "support.hpp"
#include "value_kinds.hpp"

namespace kfuse::test {

struct RandomOptions {
  int cases = 2000;
  int widest = 70000;  // columns
  int multiple = 1;    // of which the number of columns is a multiple
  int power = 1;       // an operator that sums squares cannot take values whose squares its sums cannot hold: 2
};

class RandomCase {
 public:
  std::uint64_t seed;  // of this case
  int number, rows, columns;
  ElementType type;
  ValueKind kind;

  RandomCase(std::uint64_t of_all, int i, RandomOptions const& options)
      : seed(Random(of_all ^ std::uint64_t(i)).bits()), number(i), power_(options.power) {
    Random random(seed);
    bool const many_rows = i % 500 == 499, wide = i % 10 == 0;
    int const widest = std::min(many_rows ? 3 : wide ? 70000 : 4096, std::max(1, options.widest / options.multiple));
    columns = options.multiple * draw_columns(random, widest);
    int const elements = 1 << (many_rows ? 21 : wide ? 16 : 13);
    int const most = std::max(1, elements / columns);
    rows = many_rows ? most : draw_evenly_in_size(random, most);
    constexpr ElementType types[] = {ElementType::fp64, ElementType::fp32, ElementType::bf16, ElementType::fp16};
    type = types[random.below(4)];
    kind = ValueKind(std::max(0, random.below(14) - 4));  // ordinary five times as often
    aligned_ = random.below(2) == 0;
  }

  // Where the operator's n-th matrix lies. In half of the cases, all of them allow accesses of 16 bytes.
  Place2D place(int n) const {
    Random random(seed_of(100 + n));
    int const shift = random.below(8), gap = random.below(2) * random.below(10);
    return aligned_ ? Place2D{shift / 4 * 8, gap / 4 * 8} : Place2D{shift, gap};
  }
  template <class Element>
  GuardedMatrix<Element> matrix(int n) const {
    return {rows, columns, place(n)};
  }
  template <class Element>
  GuardedMatrix<Element> matrix(int n, std::vector<double> const& values) const {
    return {rows, columns, values, place(n)};
  }

  // The values of the operator's n-th argument, of the case's kind.
  template <class Element>
  std::vector<double> values(int n) const {
    return values<Element>(n, std::size_t(rows) * columns);
  }
  template <class Element>
  std::vector<double> values(int n, std::size_t count) const {
    return values_of<Element>(kind, count, seed_of(n), power_);
  }

  // For what else a test draws, such as options: numbers that have nothing to do with the shape and the values.
  Random random() const { return Random(seed_of(1000)); }

  // What a test finds. `what` is the result's name.
  void expect(bool right, std::string const& fault) {
    if (!right) faults_ += "\n  " + fault;
  }
  template <class Element>
  void compare(std::string const& what, GuardedMatrix<Element> const& actual, std::vector<double> const& expected,
               std::vector<double> const& scales = {}) {
    auto const fault = disagreement<Element>(actual.values(), expected, actual.columns(), scales);
    expect(fault.empty(), what + fault);
    expect(actual.guards_intact(), what + ": something is written beyond its rows");
  }
  // The same bits as it was given, NaNs included.
  template <class Element>
  void unchanged(std::string const& what, GuardedMatrix<Element> const& actual, std::vector<double> const& given) {
    auto const now = actual.values();
    expect(now.size() == given.size() && same_values(now.data(), given.data(), now.size()) && actual.guards_intact(),
           what + ": an input is changed");
  }
  // run(first, count) calls the operator for rows [first, first + count) and gives the elements of the result, as many
  // for each row. A row has the same bits in a second run, alone, and among others; looked at in every fourth case.
  template <class Run>
  void same_bits(std::string const& what, Run const& run) {
    if (number % 4 != 0) return;
    auto const all = run(0, rows);
    std::size_t const width = all.size() / std::size_t(rows);
    auto const holds = [&](int first, int count) {
      auto const part = run(first, count);
      return part.size() == count * width && same_values(part.data(), all.data() + first * width, part.size());
    };
    int const some = Random(seed).below(rows);
    expect(holds(0, rows), what + ": a second run gives other bits");
    for (int const row : {0, some, rows - 1})
      expect(holds(row, 1), what + ": row " + std::to_string(row) + " has other bits alone");
    expect(holds(some / 2, some - some / 2 + 1), what + ": a row has other bits among fewer rows");
  }

  std::string const& faults() const { return faults_; }
  std::string text() const {
    return "case " + std::to_string(number) + ": " + test::name(kind) + " in " + kfuse::name(type) + ", " +
           std::to_string(rows) + " x " + std::to_string(columns) + (aligned_ ? ", aligned" : ", anywhere");
  }

 private:
  // One that has nothing to do with those of other n: Random(s + 1) gives the numbers of Random(s) but the first.
  std::uint64_t seed_of(int n) const { return Random(seed ^ std::uint64_t(n + 1)).bits(); }
  // 1 ... most, as many below as above the root.
  static int draw_evenly_in_size(Random& random, int most) {
    return std::clamp(int(std::exp2(random.between(0, std::log2(most + 1.0)))), 1, most);
  }
  static int draw_columns(Random& random, int most) {
    int const size = draw_evenly_in_size(random, most);
    int const near[] = {size, size | 1, int(std::bit_floor(unsigned(size))) + random.below(3) - 1, (size + 7) / 8 * 8};
    return std::clamp(near[random.below(4)], 1, most);
  }

  int power_;
  bool aligned_;
  std::string faults_;
};

// The first and the last of `cases` that a text such as 17 or 0-99 chooses; all if there is none.
inline std::pair<int, int> chosen_cases(char const* text, int cases) {
  int first = 0, last = cases - 1;
  if (text != nullptr && std::sscanf(text, "%d-%d", &first, &last) == 1) last = first;
  return {first, std::min(last, cases - 1)};
}
inline std::uint64_t seed_of_cases(std::string const& operation) {
  char const* const chosen = std::getenv("KFUSE_SEED");
  std::uint64_t seed = chosen == nullptr ? 0 : std::strtoull(chosen, nullptr, 10);
  for (char const letter : operation) seed = Random(seed ^ std::uint64_t(letter)).bits();
  return seed;
}

// What for_random_cases prints; empty if nothing is wrong. Ends at the third case that fails.
template <class F>
std::string faults_in_random_cases(std::string const& operation, RandomOptions const& options, F const& f,
                                   char const* chosen = nullptr) {
  auto const [first, last] = chosen_cases(chosen, options.cases);
  std::string faults = first > last ? "KFUSE_CASES chooses none of the cases" : "";
  int faulty = 0;
  for (int i = first; i <= last && faulty < 3; ++i) {
    RandomCase c(seed_of_cases(operation), i, options);
    INFO(operation, ", ", c.text());
    switch (c.type) {
      case ElementType::fp64:
        f.template operator()<double>(c);
        break;
      case ElementType::fp32:
        f.template operator()<float>(c);
        break;
      case ElementType::bf16:
        f.template operator()<bf16>(c);
        break;
      default:
        f.template operator()<fp16>(c);
    }
    if (c.faults().empty()) continue;
    faults += "\n" + operation + ", " + c.text() + c.faults();
    ++faulty;
  }
  return faults;
}

// Calls f.template operator()<Element>(RandomCase&) for each case.
template <class F>
void for_random_cases(std::string const& operation, RandomOptions const& options, F const& f) {
  auto const faults = faults_in_random_cases(operation, options, f, std::getenv("KFUSE_CASES"));
  CHECK_MESSAGE(faults.empty(), faults);
}

}  // namespace kfuse::test

#endif
