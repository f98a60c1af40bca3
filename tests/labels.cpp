// SPDX-License-Identifier: Apache-2.0
// What every operator promises beside its result, seen through Kokkos' own tool callbacks: the launches it states, with
// its labels, on the instance it is given; no allocation, no copy, no wait; and that it can be recorded.
#include <kfuse/core/replay.hpp>
#include <kfuse/fused/add_layernorm.hpp>
#include <kfuse/fused/add_rmsnorm.hpp>
#include <kfuse/fused/argmax.hpp>
#include <kfuse/fused/attention.hpp>
#include <kfuse/fused/bias_activation.hpp>
#include <kfuse/fused/cross_entropy.hpp>
#include <kfuse/fused/embedding.hpp>
#include <kfuse/fused/geglu.hpp>
#include <kfuse/fused/layernorm.hpp>
#include <kfuse/fused/linear.hpp>
#include <kfuse/fused/log_softmax.hpp>
#include <kfuse/fused/matmul.hpp>
#include <kfuse/fused/reglu.hpp>
#include <kfuse/fused/rmsnorm.hpp>
#include <kfuse/fused/rope.hpp>
#include <kfuse/fused/rope_qkv.hpp>
#include <kfuse/fused/softmax.hpp>
#include <kfuse/fused/stage/dropout.hpp>
#include <kfuse/fused/swiglu.hpp>
#include <kfuse/fused/top_k.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "support.hpp"

namespace {

using namespace kfuse::test;
using kfuse::Ledger, kfuse::make_tensor;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr int rows = 4, columns = 64, head_dim = 16, places = 8;  // four heads of queries, or two and one of K and V

// Where operators read random numbers and write results. They may be given any part of it.
struct Memory {
  static constexpr int size = 1 << 18;
  Kokkos::View<float*, Space> in{"in", size}, out{"out", size};
  Kokkos::View<int*, Space> indices{"indices", rows};
  Kokkos::View<int, Space> status{"status"};
  Kokkos::View<std::uint8_t**, Kokkos::LayoutRight, Space> visible{"visible", rows, columns};
  Kokkos::View<kfuse::bf16****, Kokkos::LayoutRight, Space> narrow{"narrow", 1, 2, 32, 64};

  Memory() {
    upload(in, random_values<float>(size, 1));
    upload(visible, std::vector<double>(rows * columns, 1));
    upload(narrow, random_values<kfuse::bf16>(narrow.size(), 2));
    upload(indices, {2, 0, 3, 1});
  }
  template <class... Extent>
  auto given(int first, Extent... extent) const {
    return make_tensor<float const>(in.data() + first, extent...);
  }
  template <class... Extent>
  auto result(int first, Extent... extent) const {
    return make_tensor(out.data() + first, extent...);
  }
  void clear() const { upload(out, std::vector<double>(size, nan_value)); }
};

enum class By { own_kernels, library };

struct Operator {
  std::string label;
  By by;
  std::function<void(Space const&)> call;
};

// Every operator of the library, and a chain of a user's.
std::vector<Operator> operators(Space const& space, Memory const& m) {
  int const n = rows * columns, far = Memory::size / 4;
  auto const x = m.given(0, rows, columns), r = m.given(n, rows, columns);
  auto const weight = m.given(2 * n, columns), bias = m.given(3 * n, columns);
  auto const y = m.result(0, rows, columns), sum = m.result(n, rows, columns);
  auto const both = m.given(0, rows, 2 * columns), table = m.given(0, places, columns);
  auto const long_x = m.given(0, 2, far);
  auto const long_y = m.result(0, 2, far);
  auto const long_weight = m.given(far, far);
  auto const square = m.given(4 * n, columns, columns);
  auto const angles = m.given(5 * n, places, head_dim);
  auto const indices = make_tensor<int const>(m.indices.data(), rows);
  auto const found = make_tensor(reinterpret_cast<int*>(m.out.data()), rows, 3);
  auto const largest = m.result(n, rows, 3);
  auto const q = m.result(0, rows, 2 * head_dim);
  auto const k = m.result(n, 1, 1, places, head_dim), v = m.result(2 * n, 1, 1, places, head_dim);
  auto const batch_a = m.given(0, 2, rows, columns), batch_b = m.given(n, 2, columns, columns);
  auto const batch_c = m.result(0, 2, rows, columns);
  int const many = Memory::size / 4 / head_dim;
  auto const queries = m.given(0, 1, 2, 1, head_dim);
  auto const keys = m.given(n, 1, 1, many, head_dim), values = m.given(far + n, 1, 1, many, head_dim);
  auto const few_keys = m.given(n, 1, 1, places, head_dim), few_values = m.given(2 * n, 1, 1, places, head_dim);
  auto const attended = m.result(0, 1, 2, 1, head_dim);
  auto const blas = std::make_shared<kfuse::Blas<Space>>(space);
  auto const workspace = std::make_shared<kfuse::Workspace<Space>>(1 << 20);
  auto const narrow_out =  // for many queries in 16 bits: matrix instructions where there are some
      make_tensor(reinterpret_cast<kfuse::bf16*>(m.out.data()), 1, 2, 32, 64);
  kfuse::LinearOptions<float> const epilogue{.bias = bias, .residual = r, .activation = kfuse::Activation::silu};

  return {
      {"test::chain", By::own_kernels,
       [=](Space const& s) {
         kfuse::fuse(s, "test::chain",
                     kfuse::load(x) | kfuse::bias(bias) | kfuse::gelu() |
                         kfuse::dropout(0.5, kfuse::RandomState{1, 2}) | kfuse::store(y));
       }},
      {"kfuse::rmsnorm", By::own_kernels, [=](Space const& s) { kfuse::rmsnorm(s, x, weight, y); }},
      {"kfuse::rmsnorm", By::own_kernels,
       [=](Space const& s) { kfuse::rmsnorm(s, long_x, long_weight, long_y, {}, *workspace); }},
      {"kfuse::add_rmsnorm", By::own_kernels, [=](Space const& s) { kfuse::add_rmsnorm(s, x, r, weight, sum, y); }},
      {"kfuse::layernorm", By::own_kernels, [=](Space const& s) { kfuse::layernorm(s, x, weight, bias, y); }},
      {"kfuse::add_layernorm", By::own_kernels,
       [=](Space const& s) { kfuse::add_layernorm(s, x, r, weight, bias, sum, y); }},
      {"kfuse::softmax", By::own_kernels, [=](Space const& s) { kfuse::softmax(s, x, y); }},
      {"kfuse::softmax", By::own_kernels, [=](Space const& s) { kfuse::softmax(s, long_x, long_y, {}, *workspace); }},
      {"kfuse::softmax", By::own_kernels, [=](Space const& s) { kfuse::softmax(s, x, m.visible, y); }},
      {"kfuse::log_softmax", By::own_kernels, [=](Space const& s) { kfuse::log_softmax(s, x, y); }},
      {"kfuse::cross_entropy", By::own_kernels,
       [=](Space const& s) { kfuse::cross_entropy(s, x, indices, m.result(0, 1), sum, {}, *workspace); }},
      {"kfuse::swiglu", By::own_kernels, [=](Space const& s) { kfuse::swiglu(s, both, y); }},
      {"kfuse::geglu", By::own_kernels, [=](Space const& s) { kfuse::geglu(s, both, y); }},
      {"kfuse::reglu", By::own_kernels, [=](Space const& s) { kfuse::reglu(s, both, y); }},
      {"kfuse::bias_activation", By::own_kernels,
       [=](Space const& s) { kfuse::bias_activation(s, x, bias, y, kfuse::Activation::relu); }},
      {"kfuse::embedding", By::own_kernels, [=](Space const& s) { kfuse::embedding(s, table, indices, y); }},
      {"kfuse::embedding", By::own_kernels,
       [=](Space const& s) { kfuse::embedding(s, table, indices, y, {.dropout = 0.5, .status = m.status}); }},
      {"kfuse::argmax", By::own_kernels, [=](Space const& s) { kfuse::argmax(s, x, make_tensor(found.data, rows)); }},
      {"kfuse::argmax", By::own_kernels,
       [=](Space const& s) { kfuse::argmax(s, long_x, make_tensor(found.data, 2), *workspace); }},
      {"kfuse::top_k", By::own_kernels, [=](Space const& s) { kfuse::top_k(s, x, largest, found); }},
      {"kfuse::rope", By::own_kernels,
       [=](Space const& s) {
         kfuse::rope(s, m.given(0, rows, 1, head_dim), m.given(n, rows, 1, head_dim), angles, indices,
                     m.result(0, rows, 1, head_dim), m.result(n, rows, 1, head_dim));
       }},
      {"kfuse::rope_qkv", By::own_kernels, [=](Space const& s) { kfuse::rope_qkv(s, x, angles, indices, q, k, v); }},
      {"kfuse::attention", By::own_kernels,
       [=](Space const& s) { kfuse::attention(s, queries, few_keys, few_values, attended); }},
      {"kfuse::attention", By::own_kernels,
       [=](Space const& s) { kfuse::attention(s, queries, keys, values, attended, {}, *workspace); }},
      {"kfuse::attention", By::own_kernels,
       [=](Space const& s) { kfuse::attention(s, m.narrow, m.narrow, m.narrow, narrow_out); }},
      {"kfuse::linear", By::library, [=](Space const& s) { kfuse::linear(s, *blas, x, square, y); }},
      {"kfuse::linear", By::library, [=](Space const& s) { kfuse::linear(s, *blas, x, square, y, epilogue); }},
      {"kfuse::matmul", By::library, [=](Space const& s) { kfuse::matmul(s, *blas, batch_a, batch_b, batch_c); }},
  };
}

// What Kokkos tells tools while `call` runs.
struct Seen {
  std::vector<std::string> kernels, regions;
  std::vector<std::uint32_t> instances;
  int allocations = 0, copies = 0, fences = 0;
};
Seen seen;

namespace tools = Kokkos::Tools::Experimental;

void note_kernel(char const* label, std::uint32_t instance, std::uint64_t*) {
  seen.kernels.emplace_back(label);
  seen.instances.push_back(instance);
}

// Kernels and regions; telling of them makes Kokkos wait, so waiting is watched apart.
Seen kernels_of(std::function<void()> const& call) {
  seen = {};
  tools::set_begin_parallel_for_callback(note_kernel);
  tools::set_begin_parallel_reduce_callback(note_kernel);
  tools::set_begin_parallel_scan_callback(note_kernel);
  tools::set_push_region_callback([](char const* label) { seen.regions.emplace_back(label); });
  call();
  tools::set_begin_parallel_for_callback(nullptr);
  tools::set_begin_parallel_reduce_callback(nullptr);
  tools::set_begin_parallel_scan_callback(nullptr);
  tools::set_push_region_callback(nullptr);
  return seen;
}
Seen hidden_work_of(std::function<void()> const& call) {
  using Handle = Kokkos::Tools::SpaceHandle;
  seen = {};
  // Kokkos 4.6 asks for zero bytes of level 1 scratch whenever it launches teams; that takes no memory.
  tools::set_allocate_data_callback(
      [](Handle, char const*, void const*, std::uint64_t bytes) { seen.allocations += bytes > 0; });
  tools::set_deallocate_data_callback(
      [](Handle, char const*, void const*, std::uint64_t bytes) { seen.allocations += bytes > 0; });
  tools::set_begin_deep_copy_callback(
      [](Handle, char const*, void const*, Handle, char const*, void const*, std::uint64_t) { ++seen.copies; });
  tools::set_begin_fence_callback([](char const*, std::uint32_t, std::uint64_t*) { ++seen.fences; });
  call();
  tools::set_allocate_data_callback(nullptr);
  tools::set_deallocate_data_callback(nullptr);
  tools::set_begin_deep_copy_callback(nullptr);
  tools::set_begin_fence_callback(nullptr);
  return seen;
}

}  // namespace

TEST_CASE("the callbacks see kernels, allocations, copies and fences") {
  Space const space = another_instance();
  Memory const memory;
  auto const kernels = kernels_of([&] { operators(space, memory)[0].call(space); }).kernels;
  CHECK(std::count(kernels.begin(), kernels.end(), "test::chain") == 1);
  Seen const hidden = hidden_work_of([&] {
    Kokkos::View<float*, Space> const view("kfuse::test::view", 8), other("kfuse::test::view", 8);
    Kokkos::deep_copy(space, view, other);
    space.fence();
  });
  CHECK(hidden.allocations == 4);
  CHECK(hidden.copies >= 1);
  CHECK(hidden.fences >= 1);
}

TEST_CASE("operators launch the kernels they state, under their own labels, on the instance they are given") {
  Space const space = another_instance();
  Memory const memory;
  auto const instance = tools::device_id(space);
  for (auto const& op : operators(space, memory)) {
    CAPTURE(op.label);
    op.call(space);  // as a first call may look for the best algorithm
    space.fence();
    Ledger const ledger;
    Seen const found = kernels_of([&] { op.call(space); });
    REQUIRE(!ledger.entries().empty());
    for (auto const& line : ledger.entries()) CHECK(line.label.starts_with(op.label));
    if (op.by == By::own_kernels) {
      CHECK(int(found.kernels.size()) == ledger.launches());
      for (auto const& kernel : found.kernels) CHECK(kernel.starts_with(op.label));
    } else {  // what the library launches is its own affair, but profilers see whose work it is
      auto const ours = [&](auto const& labels) { return std::count(labels.begin(), labels.end(), op.label); };
      CHECK(ours(found.regions) + ours(found.kernels) >= 1);
    }
    for (std::uint32_t i : found.instances) CHECK(i == instance);
  }
}

TEST_CASE("operators neither allocate nor copy nor wait once they have run") {
  Space const space = another_instance();
  Memory const memory;
  for (auto const& op : operators(space, memory)) {
    CAPTURE(op.label);
    op.call(space);
    space.fence();
    Seen const found = hidden_work_of([&] { op.call(space); });
    CHECK(found.allocations == 0);
    CHECK(found.copies == 0);
    CHECK(found.fences == 0);
  }
}

TEST_CASE("operators can be recorded at once, and replay the bits of the eager run") {
  constexpr bool has_graphs = !kfuse::impl::Backend<Space>::is_host;
  Space const space = another_instance();
  Memory const memory;
  for (auto const& op : operators(space, memory)) {
    CAPTURE(op.label);
    kfuse::Replay<Space> replay;
    CHECK(replay.record(op.call) == has_graphs);
    CHECK(replay.reason().empty() == has_graphs);
    Ledger const ledger;
    memory.clear();
    op.call(space);
    space.fence();
    auto const eager = elements(memory.out);
    CHECK(!std::isnan(eager[0]));
    CHECK(replay.launches() >= ledger.launches());
    if (op.by == By::own_kernels) CHECK(replay.launches() == ledger.launches());
    memory.clear();
    replay.run(space);
    space.fence();
    auto const replayed = elements(memory.out);
    CHECK(std::memcmp(eager.data(), replayed.data(), eager.size() * sizeof(float)) == 0);
  }
}
