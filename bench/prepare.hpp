// SPDX-License-Identifier: Apache-2.0
// A piece of work: first counted, with nothing allocated or launched, and then laid out in memory that is known to
// suffice.
#ifndef KFUSE_BENCH_PREPARE_HPP
#define KFUSE_BENCH_PREPARE_HPP

#include <kfuse/core/device.hpp>
#include <kfuse/core/ledger.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "bench.hpp"
#include "table.hpp"

namespace bench {

// What the program is asked to do, for one space.
template <class Space>
struct Job {
  std::string work;  // its name in the report
  kfuse::ElementType element;
  std::vector<std::pair<std::string, int>> shape;
  std::function<Case<Space>(Memory<Space>&)> make;
  std::optional<Bar> bar = {};  // in this element type
};

inline void check_memory(std::size_t needed, kfuse::DeviceFacts const& device, std::string const& work) {
  if (needed > device.memory_free)
    throw MemoryError("device memory too small: " + work + " needs " + bytes_text(double(needed)) + ", but of " +
                      bytes_text(double(device.memory_total)) + " on " + device.name + " only " +
                      bytes_text(double(device.memory_free)) + " are free; make the sizes smaller");
}

// What one mode of a case states.
struct Cost {
  std::vector<kfuse::LedgerEntry> lines;
  kfuse::Traffic traffic;
  int launches = 0;

  // Then a read of as many bytes is a fairer yardstick than a copy.
  bool only_reads() const { return traffic.bytes_written < traffic.bytes() / 100; }
};

// A case that takes no memory.
template <class Space>
struct Counted {
  Memory<Space> memory;
  Case<Space> work;
  Cost fused, eager;

  Counted(Space const& space, kfuse::Blas<Space>& blas, Job<Space> const& job) : memory(space), work(job.make(memory)) {
    // Beyond this, counted addresses could be those of real memory.
    if (memory.block.used() > std::size_t(1) << 44)
      check_memory(memory.block.used(), kfuse::device_facts(space), job.work);
    fused = cost(blas, work.fused);
    eager = cost(blas, work.eager);
  }

  // Of the case's tensors; and of the workspace, which is taken behind them.
  std::size_t block_bytes() const { return memory.block.used() - memory.elsewhere; }
  std::size_t workspace_bytes() const { return memory.block.peak() - memory.block.used(); }

 private:
  Cost cost(kfuse::Blas<Space>& blas, Work<Space> const& mode) {
    if (!mode) return {};
    auto const scope = memory.block.scope();
    kfuse::Ledger const ledger(kfuse::Ledger::Execution::none);
    mode(Context<Space>{memory.space, memory.block, blas});
    return {ledger.entries(), ledger.traffic(), ledger.launches()};
  }
};

// A case with all the memory that running and measuring it takes.
template <class Space>
class Prepared {
 public:
  Prepared(Space const& s, Job<Space> const& job)
      : space(s), blas(s), counted_(s, blas, job), memory_(allocated(job)), workspace_(counted_.workspace_bytes()) {
    work = job.make(memory_);
    scratch_ = Bytes(Kokkos::view_alloc(Kokkos::WithoutInitializing, "kfuse::bench::scratch"), scratch_bytes());
    Kokkos::deep_copy(space, scratch_, 0);
    Kokkos::fence("kfuse::bench: the case is ready");
  }

  Cost const& fused() const { return counted_.fused; }
  Cost const& eager() const { return counted_.eager; }
  void run(Space const& on, Work<Space> const& mode) { mode(Context<Space>{on, workspace_, blas}); }
  // Gives work in place its inputs again.
  void restore() {
    if (work.restore) run(space, work.restore);
  }

  // Empties the cache by reading.
  void flush() const { kfuse::read_bytes(space, scratch_.data(), flush_bytes()); }
  // The yardsticks: a copy that reads and writes `bytes` together, and a read of them. Their memory is not what the
  // flush leaves in the cache.
  void copy(std::size_t bytes) const { kfuse::copy_bytes(space, yard() + rounded_up(bytes / 2), yard(), bytes / 2); }
  void read(std::size_t bytes) const { kfuse::read_bytes(space, yard(), bytes); }

  Space space;
  kfuse::Blas<Space> blas;
  Case<Space> work;

 private:
  using Bytes = Kokkos::View<std::uint8_t*, typename Space::memory_space>;

  std::size_t flush_bytes() const { return kfuse::flush_bytes(space); }
  static std::size_t rounded_up(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
  std::uint8_t* yard() const { return scratch_.data() + rounded_up(flush_bytes()); }
  std::size_t scratch_bytes() const {
    std::size_t const most = std::max(counted_.fused.traffic.bytes(), counted_.eager.traffic.bytes());
    return rounded_up(flush_bytes()) + 2 * rounded_up(most / 2 + 1);
  }
  Memory<Space> allocated(Job<Space> const& job) const {
    std::size_t const inside = counted_.block_bytes();
    check_memory(inside + counted_.memory.elsewhere + counted_.workspace_bytes() + scratch_bytes(),
                 kfuse::device_facts(space), job.work);
    return Memory<Space>(space, inside);
  }

  Counted<Space> counted_;
  Memory<Space> memory_;
  kfuse::Workspace<Space> workspace_;
  Bytes scratch_;
};

}  // namespace bench

#endif
