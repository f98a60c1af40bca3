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
#include <string>
#include <utility>
#include <vector>

#include "row_memory.hpp"
#include "support.hpp"

namespace kfuse::test {

// Which rows of a larger matrix a call is for. A value depends on its argument's name, its row there and its column.
struct Part {
  int first = 0, rows = 0, columns = 0;
};

// The element types of rows, of weights, and of results and residuals.
template <class X_, class Weight_ = X_, class Y_ = X_>
struct Types {
  using X = X_;
  using Weight = Weight_;
  using Y = Y_;
};

template <class T>
class Arguments {
 public:
  using X = typename T::X;
  using Weight = typename T::Weight;
  using Y = typename T::Y;
  Space space;
  int const rows, columns;
  Workspace<Space> workspace;
  Kokkos::View<int, Space> const status{"kfuse::test::status"};

  // `used`: the rows of the call that are filled and looked at, where not all of them are.
  Arguments(Space const& on, Part const& part, Memory memory, std::vector<int> used = {})
      : space(on),
        rows(part.rows),
        columns(part.columns),
        workspace((1 << 16) + 8 * std::size_t(rows)),
        first_(part.first),
        memory_(std::move(memory)),
        used_(used.empty() ? all_of(rows) : std::move(used)) {}

  Tensor<X const, 2> in(std::string const& name) { return in(name, columns); }
  template <class E = X>
  Tensor<E const, 2> in(std::string const& name, int width) {
    return by_row<E>(name, width, Use::read, quarter);
  }
  Tensor<Y const, 2> residual(std::string const& name) { return in<Y>(name, columns); }
  Tensor<std::uint8_t const, 2> mask(std::string const& name) {
    return by_row<std::uint8_t>(name, columns, Use::read, [](Random& random) { return double(random.below(3) > 0); });
  }
  // The same for all rows.
  template <class E = X>
  Tensor<E const, 2> table(std::string const& name, int height, int width) {
    auto const [lie, is_new] = lie_of({name, height, width, sizeof(E), Use::read});
    auto const t = tensor<E>(lie, height, width);
    if (is_new) fill(t, name, 0, all_of(height), Use::read, quarter);
    return t;
  }
  Tensor<Weight const, 1> weight(std::string const& name) { return vector<Weight>(name, columns); }
  template <class E>
  Tensor<E const, 1> vector(std::string const& name, int size) {
    auto const t = table<E>(name, 1, size);
    return {t.data, {t.extents[1]}, {t.strides[1]}};
  }
  // Numbers in [0, end), one a row; 0 where there are none.
  Tensor<int const, 1> indices(std::string const& name, int end) {
    return of_rows<int>(name, [=](Random& random) { return double(random.below(std::max(1, end))); });
  }
  Tensor<Weight const, 1> weight_of_rows(std::string const& name) { return of_rows<Weight>(name, quarter); }
  // The numbers of the rows of this call.
  Tensor<int const, 1> row_numbers(std::string const& name) {
    return of_rows<int>(name, [row = 0](Random&) mutable { return double(row++); });
  }

  Tensor<Y, 2> out(std::string const& name) { return out(name, columns); }
  template <class E = Y>
  Tensor<E, 2> out(std::string const& name, int width) {
    auto const t = tensor<E>(lie_of({name, rows, width, sizeof(E), Use::written}).first, rows, width);
    results_[name] = [=, this] { return read(t, used_); };
    return t;
  }
  // One number a row.
  template <class E>
  Tensor<E, 1> out_of_rows(std::string const& name) {
    auto const column = as_column<E>(lie_of({name, 1, rows, sizeof(E), Use::written}).first);
    results_[name] = [=, this] { return read(column, used_); };
    return {column.data, {column.extents[0]}, {column.strides[0]}};
  }
  // One number.
  template <class E>
  Tensor<E, 1> out_of_all(std::string const& name) {
    auto const t = tensor<E>(lie_of({name, 1, 1, sizeof(E), Use::written}).first, 1, 1);
    results_of_all_[name] = [=] { return read(t, {0})[0]; };
    return {t.data, {t.extents[1]}, {t.strides[1]}};
  }
  // Rows that are worked on in place.
  Tensor<X, 2> in_out(std::string const& name, int width) {
    Tensor<X, 2> const t = by_row<X>(name, width, Use::both, quarter);
    results_[name] = [=, this] { return read(t, used_); };
    return t;
  }

  // What the outputs hold, row by row, and at last what is of all rows.
  std::vector<double> results() const {
    std::vector<double> all;
    std::vector<std::vector<double>> outputs;
    for (auto const& [name, values] : results_) outputs.push_back(values());
    for (std::size_t i = 0; i < used_.size(); ++i)
      for (auto const& values : outputs) {
        auto const width = std::ptrdiff_t(values.size() / used_.size()), first = std::ptrdiff_t(i) * width;
        all.insert(all.end(), values.begin() + first, values.begin() + first + width);
      }
    for (auto const& [name, value] : results_of_all_) all.push_back(value());
    return all;
  }
  // Rows that were worked on in place are as they were.
  void restore() const {
    for (auto const& again : restore_) again();
  }
  // So they are, and what is only written is NaN; of matrices without gaps.
  void clear() const {
    for (auto const& [name, known] : asked_) {
      auto const& [m, lie] = known;
      Kokkos::View<std::uint8_t*, Space, Kokkos::MemoryUnmanaged> const bytes(static_cast<std::uint8_t*>(lie.data),
                                                                              std::size_t(m.rows) * m.row_bytes());
      if (m.use == Use::written) Kokkos::deep_copy(bytes, std::uint8_t(0xff));
    }
    restore();
  }
  // Are inputs as they were made?
  bool inputs_unchanged() const {
    return std::all_of(unchanged_.begin(), unchanged_.end(), [](auto const& is) { return is(); });
  }
  std::map<std::string, std::pair<Asked, Lie>> const& asked() const { return asked_; }

 private:
  // Exact in all element types.
  static double quarter(Random& random) { return random.below(16) / 4.0 - 2; }
  static std::uint64_t seed_of(std::string const& name) {
    return std::accumulate(name.begin(), name.end(), std::uint64_t(0), [](auto sum, char c) { return 31 * sum + c; });
  }
  static std::vector<int> all_of(int rows) {
    std::vector<int> numbers(std::size_t(rows), 0);
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }
  template <class E>
  static Tensor<E, 2> tensor(Lie const& lie, int height, int width) {
    return {static_cast<E*>(lie.data), {height + lie.more_rows, width + lie.more_columns}, {lie.stride, lie.step}};
  }
  // One number a row.
  template <class E>
  Tensor<E, 2> as_column(Lie const& lie) const {
    return {static_cast<E*>(lie.data), {rows + lie.more_columns, 1}, {lie.step, 1}};
  }
  // Where a matrix lies, and whether that is asked for the first time.
  std::pair<Lie, bool> lie_of(Asked const& m) {
    auto const found = asked_.find(m.name);
    if (found != asked_.end()) return {found->second.second, false};
    Lie const lie = memory_(m);
    asked_[m.name] = {m, lie};
    return {lie, true};
  }
  template <class E, class Value>
  Tensor<E, 2> by_row(std::string const& name, int width, Use use, Value const& value) {
    auto const [lie, is_new] = lie_of({name, rows, width, sizeof(E), use});
    auto const t = tensor<E>(lie, rows, width);
    if (is_new) fill(t, name, first_, used_, use, value);
    return t;
  }

  template <class E, class Value>
  Tensor<E const, 1> of_rows(std::string const& name, Value const& value) {
    auto const [lie, is_new] = lie_of({name, 1, rows, sizeof(E), Use::read});
    auto const column = as_column<E>(lie);
    if (is_new) fill(column, name, first_, used_, Use::read, value);
    return {column.data, {column.extents[0]}, {column.strides[0]}};
  }

  // Calls f(memory from the first value to the last, its rows) for rows that are used: all at once, or one by one.
  template <class E, class F>
  static void for_runs(Tensor<E, 2> const& t, std::vector<int> const& used, F const& f) {
    if (t.empty()) return;
    bool const at_once = int(used.size()) == t.extent(0) && t.extent(0) * t.strides[0] < 1 << 28;
    int const count = at_once ? t.extent(0) : 1;
    auto const size = std::size_t((count - 1) * t.strides[0] + (t.extent(1) - 1) * t.strides[1] + 1);
    for (std::size_t i = 0; i < used.size(); i += std::size_t(count))
      f(Kokkos::View<E*, Space, Kokkos::MemoryUnmanaged>(t.data + used[i] * t.strides[0], size), count);
  }
  template <class E, class Value>
  void fill(Tensor<E, 2> const& t, std::string const& name, int first, std::vector<int> const& used, Use use,
            Value const& given) {
    auto const write = [=] {
      auto value = given;
      std::uint64_t seed = (seed_of(name) << 32) + std::uint64_t(first);
      for_runs(t, used, [&](auto const& run, int count) {
        auto memory = elements(run);
        for (int r = 0; r < count; ++r) {
          Random random(Random(seed++).bits());
          for (int c = 0; c < t.extent(1); ++c)
            memory[std::size_t(r * t.strides[0] + c * t.strides[1])] = encode<E>(value(random));
        }
        set_elements(run, memory);
      });
    };
    write();
    if (use == Use::both)
      restore_.push_back(write);
    else
      unchanged_.push_back([=, given = read(t, used)] { return read(t, used) == given; });
  }
  template <class E>
  static std::vector<double> read(Tensor<E, 2> const& t, std::vector<int> const& used) {
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
  std::map<std::string, std::pair<Asked, Lie>> asked_;
  std::map<std::string, std::function<std::vector<double>()>> results_;
  std::map<std::string, std::function<double()>> results_of_all_;
  std::vector<std::function<bool()>> unchanged_;
  std::vector<std::function<void()>> restore_;
};

}  // namespace kfuse::test

#endif
