// SPDX-License-Identifier: Apache-2.0
// What a test on simulated lanes sees of a fault that is planted in a kernel.
#ifndef KFUSE_TESTS_PLANTED_FAULTS_HPP
#define KFUSE_TESTS_PLANTED_FAULTS_HPP

#include <stdexcept>
#include <string>

#include "simulated_lanes.hpp"

namespace kfuse::test {

// work(space) gives the numbers that it computes. Nothing is seen where they are right, whichever lanes go first.
template <class Space, class Work>
std::string seen(Work const& work, Fault fault, Space space = {}) {
  auto const right = work(space);
  try {
    space.fault = fault;
    auto const forward = work(space);
    space.order = Order::backward;
    auto const backward = work(space);
    if (forward != backward) return "the result depends on which lanes go first";
    return forward != right ? "the result is wrong" : "";
  } catch (std::logic_error const& error) {
    return error.what();
  }
}

}  // namespace kfuse::test

#endif
