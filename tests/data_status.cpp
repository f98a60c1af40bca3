// SPDX-License-Identifier: Apache-2.0
#include <kfuse/core/data_status.hpp>
#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/dropout.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <doctest/doctest.h>

#include <type_traits>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::DataFault;
using kfuse::DataStatus;
using namespace kfuse::test;

// A user's stage that does not like negative values.
struct NoNegatives {
  using stage = kfuse::ElementStage;
  DataStatus status;
  DataFault fault;
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, kfuse::Place) const {
    for (auto v : x)
      if (v < 0) status.raise(fault);
  }
};

DataFault found(Kokkos::View<int, Space> const& flag) {
  return DataFault(elements(flag)[0]);
}
void run(std::vector<double> const& values, DataStatus const& status, DataFault fault = DataFault::label) {
  auto const x = view_of<float>(values, 1, int(values.size()));
  kfuse::fuse(Space(), "test", kfuse::load(x) | NoNegatives{status, fault} | kfuse::store(x));
}

TEST_CASE("a status is raised by whoever finds a fault, and stays raised until its owner clears it") {
  Kokkos::View<int, Space> const flag("status");
  auto values = random_values<float>(10000, 1, 0, 1);
  run(values, flag);
  CHECK(found(flag) == DataFault::none);
  values[7777] = -1;
  run(values, flag);
  CHECK(found(flag) == DataFault::label);
  run({1, 2}, flag);
  CHECK(found(flag) == DataFault::label);
  Kokkos::deep_copy(flag, 0);
  run({1, 2}, flag);
  CHECK(found(flag) == DataFault::none);
  run(std::vector<double>(10000, -1), flag, DataFault::position);
  CHECK(found(flag) == DataFault::position);
}

TEST_CASE("a status that nobody asks for is nowhere") {
  run({-1, 2}, {});
  DataStatus().check<Space>("op");
}

TEST_CASE("a status writes its own four bytes") {
  Kokkos::View<int*, Space> const around("around", 3);
  Kokkos::View<int, Space, Kokkos::MemoryUnmanaged> const flag(around.data() + 1);
  run({-1, 2}, flag, DataFault::index);
  CHECK(elements(around) == std::vector<int>{0, int(DataFault::index), 0});
}

TEST_CASE("a status in memory that the execution space cannot reach is refused") {
  Kokkos::View<int, Space> const flag("status");
  DataStatus(flag).check<Space>("op");
  DataStatus(Kokkos::View<int, Kokkos::SharedHostPinnedSpace>("pinned")).check<Space>("op");
  int value = 0;
  Kokkos::View<int, Elsewhere, Kokkos::MemoryUnmanaged> const far(&value);
  CHECK(contains(error_of([&] { DataStatus(far).check<Space>("kfuse::op"); }), "kfuse::op: status: the execution"));
  CHECK(contains(error_of([&] { DataStatus(far).check<Kokkos::DefaultHostExecutionSpace>("kfuse::op"); }), "status"));
  Kokkos::View<int, Kokkos::HostSpace> const host("host");
  CHECK(error_of([&] { DataStatus(host).check<Space>("op"); }).empty() ==
        bool(Kokkos::SpaceAccessibility<Space, Kokkos::HostSpace>::accessible));
}

TEST_CASE("a status in a user's chain that the execution space cannot reach is refused") {
  float const value = 0;
  int flag = 0;
  Kokkos::View<int, Elsewhere, Kokkos::MemoryUnmanaged> const far(&flag);
  auto const x = kfuse::make_tensor(&value, 0, 1);
  CHECK(contains(error_of([&] {
                   kfuse::fuse(Space(), "user::op", kfuse::load(x) | NoNegatives{far, DataFault::label});
                 }),
                 "user::op: status: the execution space cannot reach its memory"));
}

// CASES P11
TEST_CASE("a status in what is read or written, or in the state of random numbers, is refused") {
  auto const x = view_of<float>({1, 2, 3, 4}, 2, 2), y = view_of_nans<float>(2, 2);
  Kokkos::View<kfuse::RandomState, Space> const state("state");
  auto const refused = [&](void* memory) {
    Kokkos::View<int, Space, Kokkos::MemoryUnmanaged> const flag(static_cast<int*>(memory));
    auto const error = error_of([&] {
      kfuse::fuse(Space(), "user::op",
                  kfuse::load(x) | NoNegatives{flag, DataFault::label} | kfuse::dropout(0.5, state) | kfuse::store(y));
    });
    return contains(error, "user::op: status: lies in ");
  };
  for (int const i : {0, 3}) {
    CHECK(refused(x.data() + i));
    CHECK(refused(y.data() + i));
    CHECK(refused(reinterpret_cast<int*>(state.data()) + i));
  }
  Kokkos::View<int, Space> const flag("status");
  CHECK(!refused(flag.data()));
  // One may serve several.
  kfuse::fuse(Space(), "user::op",
              kfuse::load(x) | NoNegatives{flag, DataFault::label} | NoNegatives{flag, DataFault::index});
}

static_assert(std::is_trivially_copyable_v<DataStatus> && sizeof(DataStatus) <= 16);

}  // namespace
