// SPDX-License-Identifier: Apache-2.0
// The runtimes of GPUs have the same functions under other names. What is in this folder is written over a struct that
// tells the names: cuda/runtime.hpp and hip/runtime.hpp.
#ifndef KFUSE_BACKENDS_GPU_HANDLE_HPP
#define KFUSE_BACKENDS_GPU_HANDLE_HPP

#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace kfuse::gpu {

// Throws if a call of the runtime did not succeed. `what` says what was tried.
template <class Runtime>
void check_status(typename Runtime::Status status, char const* what) {
  if (status == Runtime::success) return;
  (void)Runtime::last_error();  // later calls shall not be blamed for this one
  throw std::runtime_error(std::string(Runtime::name) + " could not " + what + ": " + Runtime::error_text(status));
}

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    (void)destroy(handle);
  }
};
// Destroys what a library or runtime has made. Handles are pointers.
template <class Handle, auto destroy>
using Unique = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

}  // namespace kfuse::gpu

#endif
