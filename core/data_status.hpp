// SPDX-License-Identifier: Apache-2.0
// DataStatus: how an operator reports, without a fault and without waiting, that what it was given as data (token ids,
// positions, labels) lies outside of what it indexes. A kernel cannot throw; it raises a flag in memory that the caller
// owns, and the caller looks when it pleases:
//
//   Kokkos::View<int, Space> const status("status");                 // zero: nothing has been found
//   kfuse::embedding(space, table, tokens, y, {.status = status});
//   int found = 0;
//   Kokkos::deep_copy(space, found, status);                         // the caller's own copy, and its fence
//   space.fence();
//   if (kfuse::DataFault(found) != kfuse::DataFault::none) ...
//   Kokkos::deep_copy(space, status, 0);                             // cleared by the caller alone
//
// The flag stays raised until the caller clears it, so one look after many launches, or after the replays of a graph,
// is enough. It says that something was found and of which kind, not where; of several kinds, one. One flag may serve
// any number of operators.
#ifndef KFUSE_CORE_DATA_STATUS_HPP
#define KFUSE_CORE_DATA_STATUS_HPP

#include <kfuse/core/check.hpp>
#include <kfuse/core/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <atomic>
#include <string_view>
#include <type_traits>

namespace kfuse {

// What was found outside: the index of a row of a table (a token id), a position, or the label of a class.
enum class DataFault : int { none = 0, index, position, label };

class DataStatus {
 public:
  // Nobody asks.
  DataStatus() = default;
  // An int in memory that the kernels can write. The View must live until they have run.
  template <class View>
  requires Kokkos::is_view_v<View> DataStatus(View const& flag)
      : flag_(flag.data()), reached_(impl::ReachedFrom::spaces_of<View>()) {
    static_assert(View::rank() == 0 && std::is_same_v<typename View::value_type, int>,
                  "kfuse: a status is a View<int> of rank 0, not const");
  }

  // Whoever finds a fault stores it. Several may at the same time: each stores an int that is a fault, so one of these
  // is what is left, and it does not matter which.
  KOKKOS_FUNCTION void raise(DataFault fault) const {
    if (flag_ == nullptr) return;
    KOKKOS_IF_ON_HOST((std::atomic_ref(*flag_).store(int(fault), std::memory_order_relaxed);))
    KOKKOS_IF_ON_DEVICE((*flag_ = int(fault);))
  }

  // Where it is; null if nobody asks.
  int const* memory() const { return flag_; }

  // Throws kfuse::Error if kernels that run in Space cannot reach the flag.
  template <class Space>
  void check(std::string_view where) const {
    impl::check(reached_.template from<Space>(), where,
                "status: the execution space cannot reach its memory (the kernel would fault where it reports); give "
                "it a View in the execution space's memory, or in pinned host memory");
  }

 private:
  int* flag_ = nullptr;
  impl::ReachedFrom reached_;
};

}  // namespace kfuse

#endif
