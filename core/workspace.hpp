// SPDX-License-Identifier: Apache-2.0
// Scratch memory that the caller owns and operators borrow.
#ifndef KFUSE_CORE_WORKSPACE_HPP
#define KFUSE_CORE_WORKSPACE_HPP

#include <kfuse/core/check.hpp>
#include <kfuse/core/ledger.hpp>
#include <kfuse/core/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace kfuse {

namespace impl {
// Never the same number twice.
inline std::uint64_t next_generation() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}
}  // namespace impl

// One block of memory that Space can reach, handed out front to back in pieces aligned to 256 bytes. Pieces taken in a
// Scope are given back at its end; what has been launched may still use them, so that all work on a Workspace belongs
// on one instance of Space. Nothing is allocated after construction, so work on a Workspace can be captured.
//
//   auto measured = Workspace<Space>::counting();   // hands out addresses that must not be used
//   layer(measured, ...);                            // under Ledger(Execution::none): launches nothing
//   Workspace<Space> workspace(measured.peak());
template <class Space>
class Workspace {
 public:
  static constexpr std::size_t alignment = 256;

  explicit Workspace(std::size_t bytes) : capacity_(bytes), generation_(impl::next_generation()) {
    try {
      if (bytes > most) throw std::length_error("beyond any address");
      memory_ = Memory(Kokkos::view_alloc(Kokkos::WithoutInitializing, "kfuse::workspace::memory"), bytes + alignment);
    } catch (std::exception const& reason) {
      throw Error("workspace: " + std::to_string(bytes) + " bytes could not be allocated (" + reason.what() +
                  "); use a smaller batch or context");
    }
    begin_ = rounded_up(reinterpret_cast<std::uintptr_t>(memory_.data()));
  }
  static Workspace counting() { return Workspace(); }
  Workspace(Workspace&&) = default;
  Workspace& operator=(Workspace&&) = default;

  // A contiguous tensor in memory that holds anything. `where`, what asks for it, begins the message if there is not
  // enough.
  template <class Element, std::integral... Extent>
  auto take(std::string_view where, Extent... extent) {
    std::size_t const bytes = bytes_of(where, sizeof(Element), {std::int64_t(extent)...});
    std::size_t const rounded = rounded_up(bytes);
    impl::check(rounded <= capacity_ - used_, where, [&] {
      return "workspace: " + std::to_string(bytes) + " bytes are needed, but of " + std::to_string(capacity_) +
             " only " + std::to_string(capacity_ - used_) + " are left; make it at least " +
             std::to_string(used_ + rounded) + " bytes";
    });
    auto* const data = reinterpret_cast<Element*>(begin_ + used_);
    used_ += rounded;
    peak_ = std::max(peak_, used_);
    return make_tensor(data, extent...);
  }

  // Throws kfuse::Error if this one only counts, and what is launched now would write to the addresses it hands out.
  void check_memory(std::string_view where) const {
    impl::check(
        memory_.data() != nullptr || !Ledger::executes(), where,
        "workspace: it only counts (its addresses are no memory); count under Ledger(Execution::none), and then "
        "make a Workspace of peak() bytes");
  }

  // Gives back at its end what was taken since its beginning.
  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(workspace), used_(workspace.used_) {}
    ~Scope() { workspace_.used_ = used_; }
    Scope(Scope const&) = delete;
    Scope& operator=(Scope const&) = delete;

   private:
    Workspace& workspace_;
    std::size_t used_;
  };
  [[nodiscard]] Scope scope() { return Scope(*this); }

  // Overwrites everything that is not taken with NaNs of every element type, so that a test sees reads of leftovers.
  void poison(Space const& space) const {
    if (!memory_.data()) return;
    Kokkos::deep_copy(space, Memory(reinterpret_cast<std::uint8_t*>(begin_ + used_), capacity_ - used_),
                      std::uint8_t(0xff));
  }

  std::size_t used() const { return used_; }
  std::size_t peak() const { return peak_; }
  std::size_t capacity() const { return capacity_; }
  // A number no other workspace has had: what is recorded for one must not be replayed on another.
  std::uint64_t generation() const { return generation_; }

 private:
  static constexpr std::size_t most = std::size_t(1) << 62;
  using Memory = Kokkos::View<std::uint8_t*, typename Space::memory_space>;

  Workspace() : begin_(alignment), capacity_(most), generation_(impl::next_generation()) {}
  static constexpr std::uintptr_t rounded_up(std::uintptr_t n) { return (n + alignment - 1) / alignment * alignment; }
  static std::size_t bytes_of(std::string_view where, std::size_t element_bytes,
                              std::initializer_list<std::int64_t> extents) {
    bool possible = true;
    std::size_t bytes = element_bytes;
    for (std::int64_t e : extents) {
      possible =
          possible && e >= 0 && e <= std::numeric_limits<int>::max() && (e == 0 || bytes <= most / std::size_t(e));
      bytes *= std::size_t(e);
    }
    impl::check(possible, where,
                "workspace: an extent is negative or beyond 2^31 - 1, or there are too many bytes to count; use a "
                "smaller batch or context");
    return bytes;
  }

  Memory memory_;
  std::uintptr_t begin_ = 0;
  std::size_t capacity_ = 0, used_ = 0, peak_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace kfuse

#endif
