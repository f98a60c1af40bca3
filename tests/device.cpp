// SPDX-License-Identifier: Apache-2.0
// What is said about the device, its copies, its clock, and emptying its cache.
#include <kfuse/core/device.hpp>
#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support.hpp"

namespace {

using namespace kfuse::test;

constexpr bool on_host = kfuse::impl::Backend<Space>::is_host;

}  // namespace

TEST_CASE("the facts of a device are there and fit together") {
  auto const facts = kfuse::device_facts(Space());
  CHECK(!facts.name.empty());
  CHECK((facts.space == "host") == on_host);
  CHECK(contains(facts.versions, "Kokkos " + std::to_string(KOKKOS_VERSION / 10000) + "."));
  CHECK(facts.multiprocessors >= 1);
  CHECK(facts.cache_bytes >= std::size_t(1) << 18);
  CHECK(facts.memory_total > facts.cache_bytes);
  CHECK(facts.memory_free > 0);
  CHECK(facts.memory_free <= facts.memory_total);
  CHECK(kfuse::flush_bytes(Space()) >= 2 * facts.cache_bytes);
  CHECK(kfuse::device_facts(Kokkos::DefaultHostExecutionSpace()).space == "host");
}

TEST_CASE("memory that is taken is no longer free") {
  if constexpr (!on_host) {
    std::size_t const bytes = std::size_t(256) << 20, before = kfuse::device_facts(Space()).memory_free;
    Kokkos::View<std::uint8_t*, Space> const block(Kokkos::view_alloc(Kokkos::WithoutInitializing, "block"), bytes);
    CHECK(kfuse::device_facts(Space()).memory_free + bytes / 2 < before);
  }
}

TEST_CASE("a copy copies all of what it is told to, and nothing else") {
  Space const space = another_instance();
  auto const values = random_values<float>(1000, 1);
  auto const from = view_of<float>(values, 1000), to = view_of<float>(std::vector<double>(1000, 7), 1000);
  kfuse::copy_bytes(space, to.data() + 1, from.data(), 998 * sizeof(float));
  space.fence();
  auto const copied = download(to);
  CHECK(std::vector<double>(copied.begin() + 1, copied.end() - 1) ==
        std::vector<double>(values.begin(), values.end() - 2));
  CHECK(copied.front() == 7);
  CHECK(copied.back() == 7);
}

TEST_CASE("a timer measures the work between its marks, no more than the wall clock does") {
  using Clock = std::chrono::steady_clock;
  Space const space = another_instance();
  int const rows = 512, columns = 4096;
  auto const x = view_of<float>(std::vector<double>(std::size_t(rows) * columns, 1), rows, columns);
  auto const work = [&](int times) {
    for (int i = 0; i < times; ++i)
      kfuse::fuse(space, "test::scale", kfuse::load(x) | kfuse::scale(1) | kfuse::store(x));
  };
  work(1);
  space.fence();
  auto const begin = Clock::now();
  std::vector<kfuse::Timer<Space>> timers(2);
  int const times[] = {1, 32};
  for (int i = 0; i < 2; ++i) {
    timers[i].start(space);
    work(times[i]);
    timers[i].stop(space);
  }
  double const once = timers[0].seconds(), often = timers[1].seconds();
  double const wall = std::chrono::duration<double>(Clock::now() - begin).count();
  CHECK(once > 0);
  CHECK(often > once);
  CHECK(once + often <= wall * 1.01);

  kfuse::Timer<Space> moved = std::move(timers[1]);
  CHECK(moved.seconds() == often);
  timers[0] = std::move(moved);
  CHECK(timers[0].seconds() == often);
}

TEST_CASE("emptying the cache leaves the buffer as it was, whatever its size") {
  Space const space = another_instance();
  for (int size : {0, 1, 3, 4095, 4096, 4097, 100001}) {
    auto const values = random_values<float>(std::size_t(size), 1);
    auto const buffer = view_of<float>(values, size);
    kfuse::flush_cache(space, buffer);
    space.fence();
    CHECK(download(buffer) == values);
  }
}

TEST_CASE("emptying the cache reads all of the buffer") {
  // The kernel writes its first word if the words of a team sum to a number that it is told.
  Space const space = another_instance();
  for (std::size_t shift : {0, 1})  // from memory that is aligned for wide accesses, or not
    for (std::size_t place : {0, 1, 255, 256, 4095, 4096, 9999}) {
      std::vector<std::uint32_t> words(shift + 10000, 0);
      words[shift + place] = 12345;
      Kokkos::View<std::uint32_t*, Space> const buffer("words", words.size());
      set_elements(buffer, words);
      kfuse::impl::launch(space, "test::read", 3, 0,
                          kfuse::impl::ReadKernel{buffer.data() + shift, words.size() - shift, 4096, 12345});
      space.fence();
      CHECK(elements(buffer)[shift] == 12345);
    }
}
