// SPDX-License-Identifier: Apache-2.0
// A matrix library in plain loops, for gpu::LtBlas: it has the functions of the vendors' libraries, counts columns
// first as they do, and keeps what it is told under the number of the attribute.
#ifndef KFUSE_TESTS_LOOPS_LIBRARY_HPP
#define KFUSE_TESTS_LOOPS_LIBRARY_HPP

#include <kfuse/backends/gpu/lt_blas.hpp>
#include <kfuse/core/element.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

namespace kfuse::test {

// A clock that only products move.
struct LoopsRuntime {
  static constexpr char const* name = "loops";
  using Space = Kokkos::DefaultHostExecutionSpace;
  using Status = int;
  static constexpr Status success = 0;
  static Status last_error() { return success; }
  static char const* error_text(Status) { return "?"; }
  static Status set_device(Space const&) { return success; }
  static int stream(Space const&) { return 0; }
  static Status is_captured(int, bool* captured) {
    *captured = capturing;
    return success;
  }

  using Event = float*;
  static Status create_event(Event* event) {
    *event = new float;
    return success;
  }
  static void destroy_event(Event event) { delete event; }
  static Status record(Event event, int) {
    *event = clock;
    return success;
  }
  static Status wait(Event) { return success; }
  static Status elapsed(float* milliseconds, Event start, Event stop) {
    *milliseconds = *stop - *start;
    return success;
  }

  static inline float clock = 0;
  static inline bool capturing = false;
};

// By number, as the bytes they came in.
struct Attributes {
  std::map<int, std::vector<std::byte>> value;
  template <class T>
  T get(int attribute, T otherwise = {}) const {
    auto const found = value.find(attribute);
    if (found == value.end()) return otherwise;
    T result;
    REQUIRE(found->second.size() == sizeof(T));
    std::memcpy(&result, found->second.data(), sizeof(T));
    return result;
  }
};
struct LoopsLayout : Attributes {
  ElementType type;
  std::uint64_t rows, columns;
  std::int64_t column_stride;

  // A matrix of the batch, column after column.
  double at(void const* data, int batch, std::uint64_t row, std::uint64_t column) const {
    auto const i = index(batch, row, column);
    if (type == ElementType::fp64) return static_cast<double const*>(data)[i];
    return to_real(static_cast<bf16 const*>(data)[i]);
  }
  void put(void* data, int batch, std::uint64_t row, std::uint64_t column, double value) const {
    auto const i = index(batch, row, column);
    if (type == ElementType::fp64)
      static_cast<double*>(data)[i] = value;
    else
      static_cast<bf16*>(data)[i] = from_real<bf16>(value);
  }

 private:
  std::int64_t index(int batch, std::uint64_t row, std::uint64_t column) const {
    return batch * get<std::int64_t>(1) + std::int64_t(column) * column_stride + std::int64_t(row);
  }
};
struct Loops {
  static constexpr char const* name = "loops";
  using Runtime = LoopsRuntime;
  enum Status { success, not_supported, invalid_value, broken };
  static char const* status_text(Status) { return "broken"; }

  using Handle = int*;
  static Status create(Handle* handle) { return make(handle); }
  static void destroy(Handle handle) { delete handle; }

  struct Sums : Attributes {
    ElementType type;
  };
  using Operation = Sums*;
  using OperationAttribute = int;
  enum : int { operation_first, operation_epilogue, operation_bias };
  enum Order { not_transposed, transposed };
  enum SumsIn { sums_in_float, sums_in_double };
  enum Epilogue { no_epilogue, bias, relu, relu_bias, gelu, gelu_bias };
  static Status create_operation(Operation* operation, SumsIn sums, ElementType type) {
    make(operation);
    (*operation)->type = type;
    return (sums == sums_in_double) == (type == ElementType::fp64) ? success : broken;
  }
  static void destroy_operation(Operation operation) { delete operation; }
  static Status set_operation(Operation o, int attribute, void const* value, std::size_t size) {
    return set(*o, attribute, value, size);
  }

  using Layout = LoopsLayout*;
  using LayoutAttribute = int;
  enum : int { layout_batch, layout_batch_stride };
  static Status create_layout(Layout* layout, ElementType type, std::uint64_t rows, std::uint64_t columns,
                              std::int64_t column_stride) {
    *layout = new LoopsLayout{{}, type, rows, columns, column_stride};
    return success;
  }
  static void destroy_layout(Layout layout) { delete layout; }
  static Status set_layout(Layout l, int attribute, void const* value, std::size_t size) {
    return set(*l, attribute, value, size);
  }
  static ElementType data_type(ElementType element) { return element; }

  using Preference = Attributes*;
  using PreferenceAttribute = int;
  enum : int { preference_workspace, preference_alignment };
  static Status create_preference(Preference* preference) { return make(preference); }
  static void destroy_preference(Preference preference) { delete preference; }
  static Status set_preference(Preference p, int attribute, void const* value, std::size_t size) {
    return set(*p, attribute, value, size);
  }
  template <class Set>
  static void refine(impl::Product const& p, Set const& set) {
    set(preference_alignment, gpu::alignment(p.d.data));
  }

  // Three algorithms, the slowest first; the fastest does not work.
  using Algorithm = int;
  struct Proposal {
    Status state;
    Algorithm algo;
  };
  static Status propose(Handle, Operation, Layout, Layout, Layout, Layout, Preference preference, int most,
                        Proposal* found, int* count) {
    ++proposals;
    CHECK(preference->get<std::size_t>(preference_workspace) == 1000);
    CHECK(preference->get<std::uint32_t>(preference_alignment) >= 2);
    *count = std::min(most, 3);
    for (int i = 0; i < *count; ++i) found[i] = {i == 2 ? broken : success, i};
    return answer;
  }
  static Status multiply(Handle, Operation operation, void const* alpha, void const* a, Layout of_a, void const* b,
                         Layout of_b, void const* beta, void const* c, Layout of_c, void* d, Layout of_d,
                         Algorithm const* algorithm, void* workspace, std::size_t workspace_bytes, int) {
    CHECK(gpu::alignment(workspace) == 256);
    CHECK(workspace_bytes == 1000);
    last_algorithm = *algorithm;
    LoopsRuntime::clock += float(2 - *algorithm);
    auto const scalar = [&](void const* x) {
      return operation->type == ElementType::fp64 ? *static_cast<double const*>(x) : *static_cast<float const*>(x);
    };
    bool const flipped = operation->get<Order>(operation_first) == transposed;
    auto const epilogue = operation->get<Epilogue>(operation_epilogue);
    auto const* const added = operation->get<void const*>(operation_bias, nullptr);
    for (int batch = 0; batch < of_d->get<std::int32_t>(layout_batch); ++batch)
      for (std::uint64_t column = 0; column < of_d->columns; ++column)
        for (std::uint64_t row = 0; row < of_d->rows; ++row) {
          double sum = 0;
          for (std::uint64_t k = 0; k < of_b->rows; ++k)
            sum += (flipped ? of_a->at(a, batch, k, row) : of_a->at(a, batch, row, k)) * of_b->at(b, batch, k, column);
          sum *= scalar(alpha);
          if (scalar(beta) != 0) sum += scalar(beta) * of_c->at(c, batch, row, column);
          if (epilogue == bias || epilogue == relu_bias)
            sum += LoopsLayout{{}, of_d->type, 0, 0, 0}.at(added, 0, row, 0);
          if (epilogue == relu || epilogue == relu_bias) sum = std::max(sum, 0.0);
          of_d->put(d, batch, row, column, sum);
        }
    return answer;
  }

  static inline Status answer = success;
  static inline int proposals = 0, last_algorithm = -1;

 private:
  template <class T>
  static Status make(T** pointer) {
    *pointer = new T();
    return success;
  }
  static Status set(Attributes& attributes, int attribute, void const* value, std::size_t size) {
    auto const* const bytes = static_cast<std::byte const*>(value);
    attributes.value[attribute].assign(bytes, bytes + size);
    return success;
  }
};

}  // namespace kfuse::test

#endif
