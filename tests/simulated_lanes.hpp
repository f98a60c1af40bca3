// SPDX-License-Identifier: Apache-2.0
// A team whose lanes really exist, on the host: kernels meant for a GPU run here as they stand, with lane groups of any
// width. Each lane is a fiber; a fiber runs until it has to wait for other lanes.
//
// Lanes of a group must come to the same shuffles and broadcasts, and all lanes of a team to the same barriers. What a
// GPU would answer with a hang or with garbage is an error here, with its reason. What would depend on chance there
// depends on the space's `order` here: where a barrier is missing, the two orders give different results. Memory of the
// team that was not written holds NaNs. A test of the tests may plant a fault.
#ifndef KFUSE_TESTS_SIMULATED_LANES_HPP
#define KFUSE_TESTS_SIMULATED_LANES_HPP

#include <kfuse/backends/backend.hpp>
#include <kfuse/core/product.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fibers.hpp"

namespace kfuse::test {

// A fault to plant in a kernel: nobody comes to barrier number `number` of a team, or to that of a lane group, or
// shuffle number `number` of a lane group gives each lane its own value.
struct Fault {
  enum Kind { none, missing_barrier, missing_group_barrier, wrong_lane } kind = none;
  int number = 0;
};

// When copies to team memory that a lane need not wait for are made: hardware promises nothing between the two.
enum class Copies { at_once, when_awaited };

// What the lanes of one team share.
class SharedByTeam {
 public:
  // The team that runs, for what is not handed one: instructions.
  inline static SharedByTeam* running = nullptr;

  SharedByTeam(int lanes, int lane_width, std::size_t scratch_bytes, Copies copies, Fault planted)
      : width(lane_width),
        given_(lanes * most_bytes),
        scratch_(scratch_bytes + guard_bytes),
        copies_(copies),
        fault_(planted) {
    if (lanes % width != 0) throw std::logic_error("a team is not of whole lane groups");
  }

  // Runs kernel(lane) for the lanes of one team, on memory that holds NaNs.
  template <class Kernel>
  void run(int lanes, Order order, bool waits_at_once, Kernel const& kernel) {
    running = this;
    all_ = {.expected = lanes};
    groups_.assign(lanes / width, {.expected = width});
    barriers_.assign(lanes, 0);
    group_barriers_.assign(lanes, 0);
    has_waited_.assign(lanes, waits_at_once);
    late_.assign(lanes, {{}});
    std::ranges::fill(scratch_, std::byte(0xff));
    fibers_.run(lanes, order, kernel);
    if (std::any_of(scratch_.end() - guard_bytes, scratch_.end(), [](std::byte b) { return b != std::byte(0xff); }))
      throw std::logic_error("scratch is written beyond its end");
  }

  // The lane that runs.
  int lane() const { return fibers_.current(); }
  // Makes the launch throw.
  void fail(std::string const& reason) { fibers_.fail(reason); }

  // An operation of a lane group: each lane gives its registers, f(all) changes those of all lanes, [width], at once,
  // and each lane takes its own.
  template <class Registers, class F>
  Registers together(Registers own, int operation, F const& f) {
    static_assert(
        sizeof(Registers) <= most_bytes && sizeof(Registers) % 4 == 0 && std::is_trivially_copyable_v<Registers>,
        "lanes exchange registers of four bytes");
    int const first = lane() / width * width;
    auto const slot = [&](int i) { return &given_[i * most_bytes]; };
    std::memcpy(slot(lane()), &own, sizeof own);
    fibers_.meet(groups_[lane() / width], operation, [&] {
      std::vector<Registers> all(width, own);
      for (int i = 0; i < width; ++i) std::memcpy(&all[i], slot(first + i), sizeof own);
      f(all);
      for (int i = 0; i < width; ++i) std::memcpy(slot(first + i), &all[i], sizeof own);
    });
    std::memcpy(&own, slot(lane()), sizeof own);
    return own;
  }
  // Each lane gets the registers of the lane source(lane) of its group.
  template <class Registers, class F>
  Registers permute(Registers const& own, int operation, F const& source) {
    bool const wrong = fault_.kind == Fault::wrong_lane && int(groups_[lane() / width].generation) == fault_.number;
    return together(own, operation, [&](std::vector<Registers>& all) {
      auto const before = all;
      for (int i = 0; i < width; ++i) {
        int const from = wrong ? i : source(i);
        if (from < 0 || from >= width) return fail("a value is taken from a lane beyond the group");
        all[i] = before[from];
      }
    });
  }
  void barrier() {
    if (barriers_[lane()]++ == fault_.number && fault_.kind == Fault::missing_barrier) return;
    fibers_.meet(all_, 0, [] {});
  }
  void wait_for_kernel_before() { has_waited_[lane()] = true; }
  // Has the lane that runs waited for the kernel before? Until then it must not touch what that may write.
  bool has_waited() const { return has_waited_[lane()]; }
  void group_barrier() {
    if (group_barriers_[lane()]++ == fault_.number && fault_.kind == Fault::missing_group_barrier) return;
    fibers_.meet(groups_[lane() / width], 999, [] {});
  }
  void* scratch(std::size_t bytes) {
    if (bytes + guard_bytes <= scratch_.size()) return scratch_.data();
    fail("more scratch is used than was launched with");
    excess_.resize(bytes);  // to be used until the end of the turn
    return excess_.data();
  }

  // 16 bytes, or zeros where nothing exists.
  void copy(void* to, void const* from, bool exists) {
    if (exists && !has_waited() && may_be_early && !may_be_early(from)) fail("a copy did not wait");
    CopyGroup& open = late_[lane()].back();
    open.push_back({to, exists ? from : nullptr});
    if (copies_ == Copies::at_once) finish(open);
  }
  void close_group() { late_[lane()].emplace_back(); }
  // All groups but the last `groups` that are closed, and the open one.
  void finish_groups(int groups) {
    for (auto& of_lane = late_[lane()]; int(of_lane.size()) > groups + 1; of_lane.pop_front()) finish(of_lane.front());
  }
  void finish_copies() {
    for (CopyGroup& group : late_[lane()]) finish(group);
  }

  int const width;
  std::function<bool(void const*)> may_be_early;  // SimulatedSpace's

 private:
  static constexpr std::size_t most_bytes = 128, guard_bytes = 4096;
  using CopyGroup = std::vector<std::pair<void*, void const*>>;

  static void finish(CopyGroup& group) {
    for (auto const& [to, from] : group) from ? std::memcpy(to, from, 16) : std::memset(to, 0, 16);
    group.clear();
  }

  Fibers fibers_;
  std::vector<Fibers::Meeting> groups_;
  Fibers::Meeting all_;
  std::vector<std::byte> given_;  // [lanes] slots
  std::vector<std::byte> scratch_, excess_;
  Copies copies_;
  std::vector<std::deque<CopyGroup>> late_;  // copies of each lane; the last group is open
  Fault fault_;
  std::vector<int> barriers_, group_barriers_;  // that each lane has come to
  std::vector<bool> has_waited_;
};

template <int width_>
struct SimulatedTeam {
  static constexpr int width = width_;
  SharedByTeam& shared;
  int league, lane, size;

  KOKKOS_FUNCTION int league_rank() const { return league; }
};

// An execution space of such teams, for any operator.
template <int width>
struct SimulatedSpace {
  using execution_space = SimulatedSpace;
  using memory_space = Kokkos::HostSpace;

  Order order = Order::forward;
  int lanes = 512;  // that run at the same time, so it pretends
  Copies copies = Copies::at_once;
  Fault fault = {};
  std::function<bool(void const*)> may_be_early = {};  // may a copy from there come before the wait? By itself yes
  int concurrency() const { return lanes; }
};

struct SimulatedCopy {
  KOKKOS_INLINE_FUNCTION static void start(void* to, void const* from, bool exists) {
    KOKKOS_IF_ON_HOST((SharedByTeam::running->copy(to, from, exists);))
  }
  KOKKOS_INLINE_FUNCTION static void wait() { KOKKOS_IF_ON_HOST((SharedByTeam::running->finish_copies();)) }
  KOKKOS_INLINE_FUNCTION static void close_group() { KOKKOS_IF_ON_HOST((SharedByTeam::running->close_group();)) }
  template <int groups>
  KOKKOS_INLINE_FUNCTION static void wait_for_all_but() {
    KOKKOS_IF_ON_HOST((SharedByTeam::running->finish_groups(groups);))
  }
  static constexpr int lane_groups = 3, bytes_ahead = 12 * 1024, team_bytes = 100 * 1024, team_registers = 32 * 1024;
};

template <int width>
struct SimulatedBackend {
  static constexpr bool is_host = false;
  static constexpr int lanes = width;
  using AsyncCopy = SimulatedCopy;

  struct Device {
    static int multiprocessors(SimulatedSpace<width> const&) { return 3; }
  };

  // A matrix library that refuses everything, so that kernels of ours run.
  struct Blas {
    Blas(SimulatedSpace<width> const&, std::size_t, bool) {}
    static constexpr bool fuses(ElementType, impl::ProductEpilogue const&) { return false; }
    bool supports(impl::Product const&) const { return false; }
    void run(SimulatedSpace<width> const&, impl::Product const&) const {}
  };

  // One team after the other.
  template <class Kernel>
  static void launch(SimulatedSpace<width> const& space, std::string const&, std::ptrdiff_t league,
                     std::size_t scratch_bytes, Kernel const& kernel) {
    int threads = Kernel::threads;
    if constexpr (requires { kernel.team_size; }) threads = kernel.team_size;
    SharedByTeam shared(threads, width, scratch_bytes, space.copies, space.fault);
    shared.may_be_early = space.may_be_early;
    for (std::ptrdiff_t i = 0; i < league; ++i) {
      int const team = int(space.order == Order::forward ? i : league - 1 - i);
      shared.run(
          threads, space.order, !requires { Kernel::waits_itself; },
          [&](int lane) {
            kernel(SimulatedTeam<width>{shared, team, lane, threads});
          });
    }
  }
};

// What work(space) gives, whichever lanes go first.
template <class Space, class Work>
auto in_both_orders(Work const& work, Space space = {}) {
  auto const result = work(space);
  space.order = Order::backward;
  CHECK(work(space) == result);
  return result;
}

}  // namespace kfuse::test

namespace kfuse::impl {

template <int width>
struct BackendOf<test::SimulatedSpace<width>> {
  using type = test::SimulatedBackend<width>;
};

template <int width_>
struct LanesOf<test::SimulatedTeam<width_>> {
  static constexpr int width = width_;
  using Team = test::SimulatedTeam<width_>;

  KOKKOS_FUNCTION explicit LanesOf(Team const& t) : team(t) {}
  KOKKOS_FUNCTION int rank() const { return team.lane; }
  KOKKOS_FUNCTION int size() const { return team.size; }

  template <class T>
  KOKKOS_FUNCTION T shuffle_xor([[maybe_unused]] T const& x, [[maybe_unused]] int mask) const {
    KOKKOS_IF_ON_HOST((return team.shared.permute(x, mask, [=](int lane) { return lane ^ mask; });))
    KOKKOS_IF_ON_DEVICE((return x;))
  }
  template <class T>
  KOKKOS_FUNCTION T broadcast([[maybe_unused]] T const& x, [[maybe_unused]] int source) const {
    KOKKOS_IF_ON_HOST((return team.shared.permute(x, width + source, [=](int) { return source; });))
    KOKKOS_IF_ON_DEVICE((return x;))
  }
  KOKKOS_FUNCTION void barrier() const { KOKKOS_IF_ON_HOST((team.shared.barrier();)) }
  KOKKOS_FUNCTION void group_barrier() const { KOKKOS_IF_ON_HOST((team.shared.group_barrier();)) }
  KOKKOS_FUNCTION void wait_for_kernel_before() const { KOKKOS_IF_ON_HOST((team.shared.wait_for_kernel_before();)) }
  KOKKOS_FUNCTION void let_next_kernel_start() const {}
  KOKKOS_FUNCTION void reads_stay_before() const {}
  KOKKOS_FUNCTION void* scratch([[maybe_unused]] std::size_t bytes) const {
    KOKKOS_IF_ON_HOST((return team.shared.scratch(bytes);))
    KOKKOS_IF_ON_DEVICE((return nullptr;))
  }

  Team const& team;
};

}  // namespace kfuse::impl

#endif
