// SPDX-License-Identifier: Apache-2.0
#ifndef USER_CORE_CHECK_HPP
#define USER_CORE_CHECK_HPP

// Named like a header of kfuse; neither must get in the other's way.
inline bool close(float value, float expected) {
  return value > expected - 1e-6f && value < expected + 1e-6f;
}

#endif  // USER_CORE_CHECK_HPP
