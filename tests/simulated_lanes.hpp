// SPDX-License-Identifier: Apache-2.0
// A team whose lanes really exist, on the host: kernels meant for a GPU run here as they stand, with lane groups of any
// width. Each lane is a fiber; a fiber runs until it has to wait for other lanes.
//
// Lanes of a group must come to the same shuffles and broadcasts, and all lanes of a team to the same barriers. What a
// GPU would answer with a hang or with garbage is an error here, with its reason.
#ifndef KFUSE_TESTS_SIMULATED_LANES_HPP
#define KFUSE_TESTS_SIMULATED_LANES_HPP

#include <kfuse/backends/backend.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ucontext.h>

namespace kfuse::test {

// Fibers that take turns, and places where some of them meet.
class Fibers {
 public:
  // Runs body(lane) for each of `lanes` lanes until all are done.
  void run(int lanes, std::function<void(int)> body) {
    body_ = std::move(body);
    if (int(fibers_.size()) < lanes) stacks_ = std::make_unique_for_overwrite<std::byte[]>(lanes * stack_bytes);
    fibers_.assign(lanes, Fiber());
    for (int lane = 0; lane < lanes; ++lane) start(lane);
    for (int done = 0; done < lanes;) {
      bool moved = false;
      for (current_ = 0; current_ < lanes; ++current_) {
        Fiber& fiber = fibers_[current_];
        if (fiber.done || (fiber.waits_for && *fiber.waits_for == fiber.generation)) continue;
        fiber.waits_for = nullptr;
        swapcontext(&scheduler_, &fiber.context);
        moved = true;
        done += fiber.done;
      }
      if (!error_.empty()) throw std::logic_error(error_);
      if (!moved) throw std::logic_error("lanes wait for lanes that never come");
    }
  }

  // A place where `expected` lanes meet, again and again, each time with the same `operation`.
  struct Meeting {
    int expected = 0, arrived = 0, operation = 0;
    std::uint64_t generation = 0;
  };
  void meet(Meeting& meeting, int operation) {
    if (meeting.arrived == 0) meeting.operation = operation;
    if (meeting.operation != operation) error_ = "lanes of one group came to different operations";
    if (++meeting.arrived == meeting.expected) {
      meeting.arrived = 0;
      ++meeting.generation;
      return;
    }
    Fiber& self = fibers_[current_];
    self.waits_for = &meeting.generation;
    self.generation = meeting.generation;
    swapcontext(&self.context, &scheduler_);
  }

 private:
  static constexpr std::size_t stack_bytes = 64 * 1024;
  struct Fiber {
    ucontext_t context{};
    bool done = false;
    std::uint64_t const* waits_for = nullptr;
    std::uint64_t generation = 0;
  };

  void start(int lane) {
    ucontext_t& context = fibers_[lane].context;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks_.get() + lane * stack_bytes;
    context.uc_stack.ss_size = stack_bytes;
    context.uc_link = &scheduler_;
    auto const address = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&context, reinterpret_cast<void (*)()>(&Fibers::enter), 2, unsigned(address), unsigned(address >> 32));
  }
  static void enter(unsigned low, unsigned high) {
    auto* const self = reinterpret_cast<Fibers*>(std::uintptr_t(low) | std::uintptr_t(high) << 32);
    int const lane = self->current_;
    try {
      self->body_(lane);
    } catch (std::exception const& error) {
      self->error_ = error.what();
    }
    self->fibers_[lane].done = true;
  }

  std::function<void(int)> body_;
  std::vector<Fiber> fibers_;
  std::unique_ptr<std::byte[]> stacks_;
  ucontext_t scheduler_{};
  int current_ = 0;
  std::string error_;
};

// What the lanes of one team share.
struct SharedByTeam {
  static constexpr std::size_t exchanged_bytes = 64;

  Fibers fibers;
  std::vector<Fibers::Meeting> groups;
  Fibers::Meeting all;
  std::vector<std::byte> exchanged;  // [2][lane] slots: an operation may begin while the last one is still being read
  std::vector<std::byte> scratch;
};

template <int width_>
class SimulatedTeam {
 public:
  static constexpr int width = width_;

  SimulatedTeam(SharedByTeam& shared, int league, int lane, int size)
      : shared_(shared), league_(league), lane_(lane), size_(size) {}

  KOKKOS_FUNCTION int league_rank() const { return league_; }
  KOKKOS_FUNCTION int team_rank() const { return lane_; }
  KOKKOS_FUNCTION int team_size() const { return size_; }

  // The value that lane `source` of this group gives to this operation.
  template <class T>
  T exchange(T const& x, int source, int operation) const {
    static_assert(sizeof(T) <= SharedByTeam::exchanged_bytes && std::is_trivially_copyable_v<T>);
    auto& group = shared_.groups[lane_ / width];
    std::size_t const turn = group.generation % 2;
    auto const slot = [&](int lane) {
      return &shared_.exchanged[(turn * size_ + lane) * SharedByTeam::exchanged_bytes];
    };
    std::memcpy(slot(lane_), &x, sizeof(T));
    shared_.fibers.meet(group, operation);
    T result = x;
    std::memcpy(&result, slot(lane_ / width * width + source), sizeof(T));
    return result;
  }
  void barrier() const { shared_.fibers.meet(shared_.all, 1); }
  void* scratch(std::size_t bytes) const {
    if (bytes > shared_.scratch.size()) throw std::logic_error("more scratch is used than was launched with");
    return shared_.scratch.data();
  }

 private:
  SharedByTeam& shared_;
  int league_, lane_, size_;
};

// An execution space of such teams, for impl::fuse_on and impl::launch.
template <int width>
struct SimulatedSpace {
  using memory_space = Kokkos::HostSpace;
  int lanes = 512;  // that run at the same time, so it pretends
  int concurrency() const { return lanes; }
};

template <int width>
struct SimulatedBackend {
  static constexpr bool is_host = false;
  static constexpr int lanes = width;

  // One team after the other. Scratch holds NaNs at first.
  template <class Kernel>
  static void launch(SimulatedSpace<width> const&, std::string const&, std::ptrdiff_t league, std::size_t scratch_bytes,
                     Kernel const& kernel) {
    int threads = Kernel::threads;
    if constexpr (requires { kernel.team_size; }) threads = kernel.team_size;
    SharedByTeam shared;
    for (std::ptrdiff_t team = 0; team < league; ++team) {
      shared.groups.assign(threads / width, {.expected = width});
      shared.all = {.expected = threads};
      shared.exchanged.assign(2 * threads * SharedByTeam::exchanged_bytes, std::byte(0xff));
      shared.scratch.assign(scratch_bytes, std::byte(0xff));
      shared.fibers.run(threads, [&](int lane) { kernel(SimulatedTeam<width>(shared, int(team), lane, threads)); });
    }
  }
};

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
  KOKKOS_FUNCTION int rank() const { return team.team_rank(); }
  KOKKOS_FUNCTION int size() const { return team.team_size(); }

  template <class T>
  KOKKOS_FUNCTION T shuffle_xor([[maybe_unused]] T const& x, [[maybe_unused]] int mask) const {
    KOKKOS_IF_ON_HOST((return team.exchange(x, team.team_rank() % width ^ mask, mask);))
    KOKKOS_IF_ON_DEVICE((return x;))
  }
  template <class T>
  KOKKOS_FUNCTION T broadcast([[maybe_unused]] T const& x, [[maybe_unused]] int source) const {
    KOKKOS_IF_ON_HOST((return team.exchange(x, source, width + source);))
    KOKKOS_IF_ON_DEVICE((return x;))
  }
  KOKKOS_FUNCTION void barrier() const { KOKKOS_IF_ON_HOST((team.barrier();)) }
  KOKKOS_FUNCTION void* scratch([[maybe_unused]] std::size_t bytes) const {
    KOKKOS_IF_ON_HOST((return team.scratch(bytes);))
    KOKKOS_IF_ON_DEVICE((return nullptr;))
  }

  Team const& team;
};

}  // namespace kfuse::impl

#endif
