// SPDX-License-Identifier: Apache-2.0
// A row operator as a GPU runs it, lanes and all, on the host. Its results must be those of the host to rounding, and a
// row's bits must depend on nothing but the row: not on which lanes go first, on other rows, or on where the row lies.
#ifndef KFUSE_TESTS_OPERATOR_LANES_HPP
#define KFUSE_TESTS_OPERATOR_LANES_HPP

#include <kfuse/core/tensor.hpp>
#include <kfuse/core/workspace.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "simulated_lanes.hpp"
#include "support.hpp"

namespace kfuse::test {

using Host = Kokkos::DefaultHostExecutionSpace;

// Which rows of a larger call, and where they lie: `shift` elements after a boundary of 16 bytes, with `gap` elements
// between them.
struct Part {
  int first = 0, rows = 0, columns = 0, shift = 0, gap = 0;
};

// What an operator is run as: on lanes, with the element types of rows, of weights and of results.
template <int width, class Element_, class Weight_ = Element_, class Result_ = Element_>
struct On {
  using Space = SimulatedSpace<width>;
  using Element = Element_;
  using Weight = Weight_;
  using Result = Result_;
};

// The arguments of one call, by name. A value depends on its argument's name, its row and its column alone.
template <class Space, class On>
class Call {
 public:
  using Element = typename On::Element;
  using Weight = typename On::Weight;
  using Result = typename On::Result;
  Space const space;
  Workspace<Space> workspace{1 << 16};
  int const rows, columns;

  Call(Space const& on, Part const& p) : space(on), rows(p.rows), columns(p.columns), part_(p) {}

  Tensor<Element const, 2> in(char name) { return in(name, columns); }
  Tensor<Element const, 2> in(char name, int width) { return matrix<Element>(name, part_.first, rows, width); }
  Tensor<std::uint8_t const, 2> mask(char name) {
    return matrix<std::uint8_t>(name, part_.first, rows, columns, {0, 3});
  }
  // Integers in [0, end), one a row.
  Tensor<int const, 1> indices(char name, int end) {
    std::vector<int>& memory = keep(std::vector<int>());
    for (int r = 0; r < rows; ++r) memory.push_back(int(random_values(1, seed(name, part_.first + r), 0, end)[0]));
    return make_tensor<int const>(memory.data(), rows);
  }
  // The same for all rows.
  Tensor<Element const, 2> table(char name, int height, int width) { return matrix<Element>(name, 0, height, width); }
  Tensor<Weight const, 1> weight(char name) { return {matrix<Weight>(name, 0, 1, columns).data, {columns}, {1}}; }

  Tensor<Result, 2> out(char name) { return out(name, columns); }
  Tensor<Result, 2> out(char name, int width) {
    return outputs_[name] = matrix<Result>(name, part_.first, rows, width);
  }
  Tensor<int, 2> out_indices(char name, int width = 1) {
    std::vector<int>& memory = keep(std::vector<int>(std::size_t(rows) * width, -1));
    return index_outputs_[name] = make_tensor(memory.data(), rows, width);
  }
  // What is in the outputs, row by row. Indices, too, are values between -2 and 2, those of neighbours far apart.
  std::vector<double> results() const {
    std::vector<double> values;
    for (int r = 0; r < rows; ++r) {
      for (auto const& [name, t] : outputs_)
        for (int c = 0; c < t.extent(1); ++c) values.push_back(decode(t(r, c)));
      for (auto const& [name, t] : index_outputs_)
        for (int c = 0; c < t.extent(1); ++c) values.push_back(double(unsigned(t(r, c)) * 0x9E3779B9u) * 0x1p-30 - 2);
    }
    return values;
  }

 private:
  struct Range {
    double low = -2, high = 2;
  };
  static std::uint64_t seed(char name, int row) { return std::uint64_t(name) << 32 | std::uint32_t(row); }

  // A double that is rounded up to 16 bits, unless it is rounded to a float before.
  static double just_above_half(double x) {
    double const unit = ulp<bf16>(x);
    return (std::floor(x / unit) + 0.5 + 0x1p-30) * unit;
  }
  template <class T>
  Tensor<T, 2> matrix(char name, int first_row, int height, int width, Range range = {}) {
    constexpr int chunk = 16 / int(sizeof(T));
    std::ptrdiff_t const stride = (width + chunk - 1) / chunk * chunk + part_.gap;
    std::vector<T>& memory = keep(std::vector<T>(height * stride + 2 * chunk));
    int const past = int(reinterpret_cast<std::uintptr_t>(memory.data()) % 16 / sizeof(T));
    Tensor<T, 2> const t{memory.data() + (chunk - past) % chunk + part_.shift, {height, width}, {stride, 1}};
    for (int r = 0; r < height; ++r) {
      auto const values = random_values(width, seed(name, first_row + r), range.low, range.high);
      for (int c = 0; c < width; ++c) {
        bool const as_drawn = !std::is_same_v<T, double> || c % 2 == 0;
        t(r, c) = encode<T>(as_drawn ? values[c] : just_above_half(values[c]));
      }
    }
    return t;
  }
  template <class T>
  std::vector<T>& keep(std::vector<T>&& memory) {
    auto const kept = std::make_shared<std::vector<T>>(std::move(memory));
    kept_.push_back(kept);
    return *kept;
  }

  Part part_;
  std::vector<std::shared_ptr<void>> kept_;
  std::map<char, Tensor<Result, 2>> outputs_;
  std::map<char, Tensor<int, 2>> index_outputs_;
};

// What depends on a row's number, as dropout does, is not looked at alone.
enum class KnowsRow { no, yes };

template <class On, class Operator>
void check(std::string const& name, std::vector<int> const& widths, Operator const& run,
           KnowsRow knows_row = KnowsRow::no) {
  using Space = typename On::Space;
  auto const results = [&](auto const& space, Part const& part) {
    Call<std::remove_cvref_t<decltype(space)>, On> call(space, part);
    run(call);
    return call.results();
  };
  auto const lanes = [&](Part const& part, Space const& on = {}) {
    return in_both_orders<Space>([&](Space const& space) { return results(space, part); }, on);
  };
  for (int const columns : widths) {
    CAPTURE(name);
    CAPTURE(columns);
    int const rows = columns <= 100 ? 37 : columns <= 600 ? 9 : 2;
    auto const all = lanes({.rows = rows, .columns = columns});
    auto const host = results(Host(), {.rows = rows, .columns = columns});
    double largest = 0;  // below a tenth of it, sums may have cancelled
    for (double const y : host) largest = std::max(largest, std::abs(y));
    CHECK(deviation(all, host, largest / 10) <= 2 * tolerance<typename On::Result>());
    CHECK(lanes({.rows = rows, .columns = columns, .shift = 1, .gap = 3}) == all);
    if (knows_row == KnowsRow::yes) continue;
    // The last row alone: where it is long, its segments have teams of their own.
    std::vector<double> const last(all.end() - all.size() / rows, all.end());
    CHECK(lanes({.first = rows - 1, .rows = 1, .columns = columns}, {.lanes = 1 << 20}) == last);
  }
}

}  // namespace kfuse::test

#endif
