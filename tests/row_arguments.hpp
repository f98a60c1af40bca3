// SPDX-License-Identifier: Apache-2.0
// The arguments of one call of a row operator, made by name, in memory that a test chooses: with gaps, far apart, on
// top of one another. What is true of every row operator is tested with them (row_cases.cpp).
#ifndef KFUSE_TESTS_ROW_ARGUMENTS_HPP
#define KFUSE_TESTS_ROW_ARGUMENTS_HPP

#include <kfuse/core/tensor.hpp>
#include <kfuse/core/workspace.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "row_memory.hpp"
#include "support.hpp"

namespace kfuse::test {

// Which rows of a larger matrix a call is for. A value depends on its argument's name, its row there and its column.
struct Part {
  int first = 0, rows = 0, columns = 0;
};

class Arguments {
 public:
  using Element = bf16;  // the tests of each operator hold all types against its definition; here 2^31 values must fit
  Space const space;
  int const rows, columns;
  Workspace<Space> workspace{1 << 16};

  // `used`: the rows of the call that are filled and looked at, where not all of them are.
  Arguments(Space const& on, Part const& part, Memory memory, std::vector<int> used = {})
      : space(on),
        rows(part.rows),
        columns(part.columns),
        first_(part.first),
        memory_(std::move(memory)),
        used_(used.empty() ? all_of(rows) : std::move(used)) {}

  Tensor<Element const, 2> in(char name) { return in(name, columns); }
  Tensor<Element const, 2> in(char name, int width) { return by_row<Element>(name, width, quarter); }
  Tensor<std::uint8_t const, 2> mask(char name) {
    return by_row<std::uint8_t>(name, columns, [](Random& random) { return double(random.below(3) > 0); });
  }
  // The same for all rows.
  Tensor<Element const, 2> table(char name, int height, int width) {
    auto const [lie, is_new] = lie_of({name, height, width, sizeof(Element), false});
    auto const t = tensor<Element>(lie, height, width);
    if (is_new) fill(t, name, 0, all_of(height), quarter);
    return t;
  }
  Tensor<Element const, 1> weight(char name) {
    auto const t = table(name, 1, columns);
    return {t.data, {columns}, {t.strides[1]}};
  }
  // Numbers in [0, end), one a row; 0 where there are none.
  template <class Index = int>
  Tensor<Index const, 1> indices(char name, int end) {
    auto const [lie, is_new] = lie_of({name, 1, rows, sizeof(Index), false});
    Tensor<Index, 2> const column{static_cast<Index*>(lie.data), {rows, 1}, {lie.step, 1}};
    if (is_new)
      fill(column, name, first_, used_, [=](Random& random) { return double(random.below(std::max(1, end))); });
    return {column.data, {rows}, {lie.step}};
  }

  Tensor<Element, 2> out(char name) { return out<Element>(name, columns); }
  template <class T = Element>
  Tensor<T, 2> out(char name, int width) {
    auto const t = tensor<T>(lie_of({name, rows, width, sizeof(T), true}).first, rows, width);
    results_[name] = [=, this] { return read(t, used_); };
    return t;
  }
  // One number a row.
  template <class T>
  Tensor<T, 1> out_of_rows(char name) {
    Lie const lie = lie_of({name, 1, rows, sizeof(T), true}).first;
    Tensor<T, 2> const column{static_cast<T*>(lie.data), {rows, 1}, {lie.step, 1}};
    results_[name] = [=, this] { return read(column, used_); };
    return {column.data, {rows}, {lie.step}};
  }

  // What the outputs hold, row by row.
  std::vector<double> results() const {
    std::vector<double> all;
    std::vector<std::vector<double>> outputs;
    for (auto const& [name, values] : results_) outputs.push_back(values());
    for (std::size_t i = 0; i < used_.size(); ++i)
      for (auto const& values : outputs) {
        auto const width = std::ptrdiff_t(values.size() / used_.size()), first = std::ptrdiff_t(i) * width;
        all.insert(all.end(), values.begin() + first, values.begin() + first + width);
      }
    return all;
  }
  // Are inputs as they were made?
  bool inputs_unchanged() const {
    return std::all_of(unchanged_.begin(), unchanged_.end(), [](auto const& is) { return is(); });
  }
  std::map<char, std::pair<Asked, Lie>> const& asked() const { return asked_; }

 private:
  // Exact in all element types.
  static double quarter(Random& random) { return random.below(16) / 4.0 - 2; }
  static std::vector<int> all_of(int rows) {
    std::vector<int> numbers(std::size_t(rows), 0);
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }
  template <class T>
  static Tensor<T, 2> tensor(Lie const& lie, int height, int width) {
    return {static_cast<T*>(lie.data), {height, width}, {lie.stride, lie.step}};
  }
  // Where a matrix lies, and whether that is asked for the first time.
  std::pair<Lie, bool> lie_of(Asked const& m) {
    auto const found = asked_.find(m.name);
    if (found != asked_.end()) return {found->second.second, false};
    Lie const lie = memory_(m);
    asked_[m.name] = {m, lie};
    return {lie, true};
  }
  template <class T, class Value>
  Tensor<T const, 2> by_row(char name, int width, Value const& value) {
    auto const [lie, is_new] = lie_of({name, rows, width, sizeof(T), false});
    auto const t = tensor<T>(lie, rows, width);
    if (is_new) fill(t, name, first_, used_, value);
    return t;
  }

  // Calls f(memory from the first value to the last, its rows) for rows that are used: all at once, or one by one.
  template <class T, class F>
  static void for_runs(Tensor<T, 2> const& t, std::vector<int> const& used, F const& f) {
    if (t.empty()) return;
    bool const at_once = int(used.size()) == t.extent(0) && t.extent(0) * t.strides[0] < 1 << 28;
    int const count = at_once ? t.extent(0) : 1;
    auto const size = std::size_t((count - 1) * t.strides[0] + (t.extent(1) - 1) * t.strides[1] + 1);
    for (std::size_t i = 0; i < used.size(); i += std::size_t(count))
      f(Kokkos::View<T*, Space, Kokkos::MemoryUnmanaged>(t.data + used[i] * t.strides[0], size), count);
  }
  template <class T, class Value>
  void fill(Tensor<T, 2> const& t, char name, int first, std::vector<int> const& used, Value const& value) {
    std::uint64_t seed = (std::uint64_t(name) << 32) + std::uint64_t(first);
    for_runs(t, used, [&](auto const& run, int count) {
      auto memory = elements(run);
      for (int r = 0; r < count; ++r) {
        Random random(Random(seed++).bits());
        for (int c = 0; c < t.extent(1); ++c)
          memory[std::size_t(r * t.strides[0] + c * t.strides[1])] = encode<T>(value(random));
      }
      set_elements(run, memory);
    });
    unchanged_.push_back([=, given = read(t, used)] { return read(t, used) == given; });
  }
  template <class T>
  static std::vector<double> read(Tensor<T, 2> const& t, std::vector<int> const& used) {
    std::vector<double> values;
    for_runs(t, used, [&](auto const& run, int count) {
      auto const memory = elements(run);
      for (int r = 0; r < count; ++r)
        for (int c = 0; c < t.extent(1); ++c)
          values.push_back(decode(memory[std::size_t(r * t.strides[0] + c * t.strides[1])]));
    });
    return values;
  }

  int first_;
  Memory memory_;
  std::vector<int> used_;
  std::map<char, std::pair<Asked, Lie>> asked_;
  std::map<char, std::function<std::vector<double>()>> results_;
  std::vector<std::function<bool()>> unchanged_;
};

}  // namespace kfuse::test

#endif
