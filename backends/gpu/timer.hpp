// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_GPU_TIMER_HPP
#define KFUSE_BACKENDS_GPU_TIMER_HPP

#include <kfuse/backends/gpu/handle.hpp>

namespace kfuse::gpu {

// The time between two points of a stream, by its own clock.
template <class Runtime>
class Timer {
  using Space = typename Runtime::Space;

 public:
  void start(Space const& space) {
    check_status<Runtime>(Runtime::record(start_.get(), Runtime::stream(space)), "start a timer");
  }
  void stop(Space const& space) {
    check_status<Runtime>(Runtime::record(stop_.get(), Runtime::stream(space)), "stop a timer");
  }
  double seconds() const {
    float milliseconds = 0;
    check_status<Runtime>(Runtime::wait(stop_.get()), "wait for a timer");
    check_status<Runtime>(Runtime::elapsed(&milliseconds, start_.get(), stop_.get()), "read a timer");
    return double(milliseconds) * 1e-3;
  }

 private:
  using Event = Unique<typename Runtime::Event, Runtime::destroy_event>;
  static Event make_event() {
    typename Runtime::Event event = nullptr;
    check_status<Runtime>(Runtime::create_event(&event), "make an event");
    return Event(event);
  }

  Event start_ = make_event(), stop_ = make_event();
};

}  // namespace kfuse::gpu

#endif
