// SPDX-License-Identifier: Apache-2.0
// The device an execution space runs on: what it is called, how large it is, how long work on it takes, and how to
// empty its cache before a measurement.
#ifndef KFUSE_CORE_DEVICE_HPP
#define KFUSE_CORE_DEVICE_HPP

#include <kfuse/core/launch.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace kfuse {

struct DeviceFacts {
  std::string name;             // as its maker calls it
  std::string space;            // "cuda", "hip" or "host"
  std::string versions;         // of Kokkos and the vendor's libraries
  int multiprocessors = 0;      // on the host: threads of the space
  std::size_t cache_bytes = 0;  // of the last level, which all multiprocessors share
  std::size_t memory_free = 0, memory_total = 0;
};

template <class Space>
DeviceFacts device_facts(Space const& space = {}) {
  using Device = typename impl::Backend<Space>::Device;
  std::string const kokkos = std::to_string(KOKKOS_VERSION / 10000) + "." + std::to_string(KOKKOS_VERSION / 100 % 100) +
                             "." + std::to_string(KOKKOS_VERSION % 100);
  return {.name = Device::name(space),
          .space = Device::space_name,
          .versions = "Kokkos " + kokkos + ", " + Device::versions(),
          .multiprocessors = Device::multiprocessors(space),
          .cache_bytes = Device::cache_bytes(space),
          .memory_free = Device::memory_free(space),
          .memory_total = Device::memory_total(space)};
}

// How long work on a space takes:
//   timer.start(space); work(space); timer.stop(space); ... timer.seconds()
// On GPUs start and stop only mark the stream, and seconds() waits; on the host start and stop wait.
template <class Space>
using Timer = typename impl::Backend<Space>::Timer;

// The plainest copy the device has, to measure kernels against. Both are memory of the device. Returns before it is
// done.
template <class Space>
void copy_bytes(Space const& space, void* to, void const* from, std::size_t bytes) {
  impl::Backend<Space>::Device::copy(space, to, from, bytes);
}

namespace impl {

// Reads all of `buffer`, in accesses of 16 bytes where it is aligned. It is written only if the sum of its words is
// `never`, so that the reads cannot be left out.
struct ReadKernel {
  static constexpr int threads = 256, registers = 32;
  static constexpr std::size_t in_flight = 4;  // chunks that a lane asks for before it waits
  struct alignas(16) Chunk {
    std::uint32_t word[4];
  };

  std::uint32_t* buffer;
  std::size_t words, words_per_team;
  std::uint32_t never;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const lanes(team);
    std::size_t const first = std::size_t(team.league_rank()) * words_per_team;
    std::size_t const last = first + words_per_team < words ? first + words_per_team : words;
    std::size_t const rank = std::size_t(lanes.rank()), size = std::size_t(lanes.size());
    auto const* chunks = reinterpret_cast<Chunk const*>(buffer + first);
    bool const is_aligned = reinterpret_cast<std::uintptr_t>(chunks) % alignof(Chunk) == 0;
    std::size_t const whole = is_aligned ? (last - first) / 4 : 0;
    std::size_t i = rank;
    std::uint32_t sum = 0;
    for (; i + (in_flight - 1) * size < whole; i += in_flight * size) {
      Chunk chunk[in_flight];
      for (std::size_t k = 0; k < in_flight; ++k) chunk[k] = chunks[i + k * size];
      for (auto const& c : chunk) sum += c.word[0] + c.word[1] + c.word[2] + c.word[3];
    }
    for (; i < whole; i += size) sum += chunks[i].word[0] + chunks[i].word[1] + chunks[i].word[2] + chunks[i].word[3];
    for (i = first + 4 * whole + rank; i < last; i += size) sum += buffer[i];
    if (sum == never) buffer[0] = sum;
  }
};

}  // namespace impl

// The plainest read the device has, of `bytes` (whole words of 4) of its memory, which stays as it is. Returns before
// it is done.
template <class Space>
void read_bytes(Space const& space, void* from, std::size_t bytes) {
  std::size_t const words = bytes / sizeof(std::uint32_t);
  constexpr std::size_t words_per_team = 16 * impl::ReadKernel::threads;
  impl::launch(space, "kfuse::read", std::ptrdiff_t((words + words_per_team - 1) / words_per_team), 0,
               impl::ReadKernel{static_cast<std::uint32_t*>(from), words, words_per_team, 0x9E3779B9u});
}

// Leaves in the device's cache nothing but `buffer`, by reading it: lines that were written would cost the next kernel
// their way back to memory. `buffer` is scratch of at least flush_bytes(), filled once.
template <class Space>
std::size_t flush_bytes(Space const& space = {}) {
  return 2 * impl::Backend<Space>::Device::cache_bytes(space);
}
template <class Space, class View>
requires Kokkos::is_view_v<View>
void flush_cache(Space const& space, View const& buffer) {
  static_assert(bool(Kokkos::SpaceAccessibility<Space, typename View::memory_space>::accessible),
                "kfuse: the execution space cannot reach this View's memory");
  static_assert(!std::is_const_v<typename View::value_type>, "kfuse: flush_cache needs a View that is not const");
  read_bytes(space, buffer.data(), buffer.span() * sizeof(typename View::value_type));
}

}  // namespace kfuse

#endif
