// SPDX-License-Identifier: Apache-2.0
// Fibers that take turns, and places where some of them meet: what simulated lanes are made of.
#ifndef KFUSE_TESTS_FIBERS_HPP
#define KFUSE_TESTS_FIBERS_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ucontext.h>

namespace kfuse::test {

// Which of the fibers that can go on does: the first, or the last. It goes as far as its next meeting. So two fibers'
// accesses to memory that no meeting puts in order come one way round in one order, and the other way round in the
// other: a result that depends on a race is not the same in both.
enum class Order { forward, backward };

class Fibers {
 public:
  // Runs body(fiber) for each of `count` fibers until all are done.
  void run(int count, Order order, std::function<void(int)> body) {
    body_ = std::move(body);
    if (int(fibers_.size()) < count) stacks_ = std::make_unique_for_overwrite<std::byte[]>(count * stack_bytes);
    fibers_.assign(count, Fiber());
    for (int i = 0; i < count; ++i) start(i);
    int done = 0;
    for (int turn = 0; done < count; ++turn) {
      if (turn == count) throw std::logic_error("lanes wait for lanes that never come");
      current_ = order == Order::forward ? turn : count - 1 - turn;
      Fiber& fiber = fibers_[current_];
      if (fiber.done || (fiber.waits_for && *fiber.waits_for == fiber.generation)) continue;
      met_ = false;
      swapcontext(&scheduler_, &fiber.context);
      if (!error_.empty()) throw std::logic_error(error_);
      done += fiber.done;
      if (met_) turn = -1;  // fibers before this one can go on
    }
  }
  // The one that runs.
  int current() const { return current_; }
  // Makes run() throw at the end of this turn. Nothing is thrown through a fiber, which not all tools understand.
  void fail(std::string const& reason) {
    if (error_.empty()) error_ = reason;
  }

  // A place where `expected` fibers meet, again and again, each time for the same `operation`. The last to come calls
  // `then`, before any of them goes on.
  struct Meeting {
    int expected = 0, arrived = 0, operation = 0;
    std::uint64_t generation = 0;
  };
  template <class F>
  void meet(Meeting& meeting, int operation, F const& then) {
    if (meeting.arrived == 0) meeting.operation = operation;
    if (meeting.operation != operation) fail("lanes of one group came to different operations");
    Fiber& self = fibers_[current_];
    self.waits_for = &meeting.generation;
    self.generation = meeting.generation;
    if (++meeting.arrived == meeting.expected) {
      then();
      meeting.arrived = 0;
      ++meeting.generation;
      met_ = true;
    }
    swapcontext(&self.context, &scheduler_);
  }

 private:
  static constexpr std::size_t stack_bytes = 128 * 1024;
  struct Fiber {
    ucontext_t context{};
    bool done = false;
    std::uint64_t const* waits_for = nullptr;  // to become another number than `generation`
    std::uint64_t generation = 0;
  };

  void start(int i) {
    ucontext_t& context = fibers_[i].context;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks_.get() + i * stack_bytes;
    context.uc_stack.ss_size = stack_bytes;
    context.uc_link = &scheduler_;
    auto const address = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&context, reinterpret_cast<void (*)()>(&Fibers::enter), 2, unsigned(address), unsigned(address >> 32));
  }
  static void enter(unsigned low, unsigned high) {
    auto* const self = reinterpret_cast<Fibers*>(std::uintptr_t(low) | std::uintptr_t(high) << 32);
    self->body_(self->current_);
    self->fibers_[self->current_].done = true;
  }

  std::function<void(int)> body_;
  std::vector<Fiber> fibers_;
  std::unique_ptr<std::byte[]> stacks_;
  ucontext_t scheduler_{};
  int current_ = 0;
  bool met_ = false;  // did the fiber that ran last complete a meeting?
  std::string error_;
};

}  // namespace kfuse::test

#endif
