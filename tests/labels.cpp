// SPDX-License-Identifier: Apache-2.0
// What every operator promises beside its result, seen through Kokkos' own tool callbacks: the launches it states, with
// its labels, on the instance it is given; no allocation, no copy, no wait; and that it can be recorded.
#include <kfuse/core/replay.hpp>
#include <kfuse/fused/attention.hpp>
#include <kfuse/fused/fuse_linear.hpp>
#include <kfuse/fused/linear.hpp>
#include <kfuse/fused/matmul.hpp>
#include <kfuse/fused/stage/activation.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/dropout.hpp>
#include <kfuse/fused/stage/load_store.hpp>
#include <kfuse/fused/stage/norm.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "row_operators.hpp"
#include "support.hpp"

namespace {

using namespace kfuse::test;
using kfuse::Ledger, kfuse::make_tensor;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr int rows = 4, columns = 64, head_dim = 16, places = 8;  // two heads of queries, one of K and V

// Where operators that are no row operators read random numbers and write results. They may be given any part of it.
struct OneMemory {
  static constexpr int size = 1 << 18;
  Kokkos::View<float*, Space> in{"in", size}, out{"out", size};
  Kokkos::View<kfuse::bf16****, Kokkos::LayoutRight, Space> narrow{"narrow", 1, 2, 32, 64};

  OneMemory() {
    upload(in, random_values<float>(size, 1));
    upload(narrow, random_values<kfuse::bf16>(narrow.size(), 2));
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
  std::function<std::vector<double>()> results;
  std::function<void()> clear;  // what it has written
};

// A chain of a user's, attention and products.
std::vector<Operator> other_operators(Space const& space) {
  OneMemory const m;
  int const n = rows * columns, far = OneMemory::size / 4, many = far / head_dim;
  auto const x = m.given(0, rows, columns), r = m.given(n, rows, columns);
  auto const bias = m.given(3 * n, columns);
  auto const y = m.result(0, rows, columns);
  auto const square = m.given(4 * n, columns, columns);
  auto const batch_a = m.given(0, 2, rows, columns), batch_b = m.given(n, 2, columns, columns);
  auto const batch_c = m.result(0, 2, rows, columns);
  auto const queries = m.given(0, 1, 2, 1, head_dim);
  auto const keys = m.given(n, 1, 1, many, head_dim), values = m.given(far + n, 1, 1, many, head_dim);
  auto const few_keys = m.given(n, 1, 1, places, head_dim), few_values = m.given(2 * n, 1, 1, places, head_dim);
  auto const attended = m.result(0, 1, 2, 1, head_dim);
  auto const blas = std::make_shared<kfuse::Blas<Space>>(space);
  auto const workspace = std::make_shared<kfuse::Workspace<Space>>(1 << 20);
  auto const narrow_out =  // for many queries in 16 bits: matrix instructions where there are some
      make_tensor(reinterpret_cast<kfuse::bf16*>(m.out.data()), 1, 2, 32, 64);
  kfuse::LinearOptions<float> const epilogue{.bias = bias, .residual = r, .activation = kfuse::Activation::silu};

  std::vector<Operator> all;
  auto const list = [&](char const* label, By by, std::function<void(Space const&)> const& call) {
    all.push_back({label, by, call, [m] { return download(m.out); }, [m] { m.clear(); }});
  };
  list("test::chain", By::own_kernels, [=](Space const& s) {
    kfuse::fuse(s, "test::chain",
                kfuse::load(x) | kfuse::bias(bias) | kfuse::gelu() | kfuse::dropout(0.5, kfuse::RandomState{1, 2}) |
                    kfuse::store(y));
  });
  list("kfuse::attention", By::own_kernels,
       [=](Space const& s) { kfuse::attention(s, queries, few_keys, few_values, attended); });
  list("kfuse::attention", By::own_kernels,
       [=](Space const& s) { kfuse::attention(s, queries, keys, values, attended, {}, *workspace); });
  list("kfuse::attention", By::own_kernels,
       [=](Space const& s) { kfuse::attention(s, m.narrow, m.narrow, m.narrow, narrow_out); });
  list("kfuse::linear", By::library, [=](Space const& s) { kfuse::linear(s, *blas, x, square, y); });
  list("kfuse::linear", By::library, [=](Space const& s) { kfuse::linear(s, *blas, x, square, y, epilogue); });
  list("test::projection", By::own_kernels, [=](Space const& s) {
    kfuse::fuse_linear(s, *blas, *workspace, "test::projection", kfuse::load(x) | kfuse::rmsnorm(bias), square,
                       kfuse::add(r) | kfuse::store(y));
  });
  list("kfuse::matmul", By::library, [=](Space const& s) { kfuse::matmul(s, *blas, batch_a, batch_b, batch_c); });
  return all;
}

// Every operator of the library, row operators on short rows and on rows that several teams may share.
std::vector<Operator> operators(Space const& space) {
  auto all = other_operators(space);
  for (auto const& run : row_operators<AllBf16>())
    for (Part const part : {Part{0, rows, columns}, Part{0, 2, 65536}}) {
      auto const a = std::make_shared<Arguments<AllBf16>>(space, part, Guarded());
      {  // makes the arguments, and launches nothing
        Ledger const ledger(Ledger::Execution::none);
        run(*a);
      }
      auto const call = [=](Space const& on) {
        a->space = on;
        run(*a);
      };
      all.push_back({run.label(), By::own_kernels, call, [a] { return a->results(); }, [a] { a->clear(); }});
    }
  return all;
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
  auto const kernels = kernels_of([&] { other_operators(space)[0].call(space); }).kernels;
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
  auto const instance = tools::device_id(space);
  for (auto const& op : operators(space)) {
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
  for (auto const& op : operators(space)) {
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
  for (auto const& op : operators(space)) {
    CAPTURE(op.label);
    kfuse::Replay<Space> replay;
    CHECK(replay.record(op.call) == has_graphs);
    CHECK(replay.reason().empty() == has_graphs);
    Ledger const ledger;
    op.clear();
    op.call(space);
    space.fence();
    auto const eager = op.results();
    CHECK(!std::isnan(eager[0]));
    CHECK(replay.launches() >= ledger.launches());
    if (op.by == By::own_kernels) CHECK(replay.launches() == ledger.launches());
    op.clear();
    replay.run(space);
    space.fence();
    auto const replayed = op.results();
    CHECK(same_values(eager.data(), replayed.data(), eager.size()));
  }
}
