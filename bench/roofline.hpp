// SPDX-License-Identifier: Apache-2.0
// How fast a device is at best: a large copy, and a large product of matrices.
#ifndef KFUSE_BENCH_ROOFLINE_HPP
#define KFUSE_BENCH_ROOFLINE_HPP

#include <kfuse/core/device.hpp>
#include <kfuse/fused/matmul.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "bench.hpp"
#include "statistics.hpp"

namespace bench {

// The median time of ten repetitions, after three that do not count.
template <class Space, class F>
std::optional<double> median_seconds(Space const& space, F const& work) {
  std::vector<double> all;
  for (int i = 0; i < 13; ++i) {
    kfuse::Timer<Space> timer;
    timer.start(space);
    work();
    timer.stop(space);
    if (i >= 3) all.push_back(timer.seconds());
  }
  auto const seconds = summary(all);
  return seconds ? std::optional(seconds->median) : std::nullopt;
}

template <class Space>
constexpr bool on_host = kfuse::impl::Backend<Space>::is_host;

// Bytes read and written a second by a copy of `bytes` of them, or fewer, where memory is short.
template <class Space>
std::optional<double> copy_speed(Space const& space, std::size_t bytes = std::size_t(1) << (on_host<Space> ? 27 : 31)) {
  std::size_t const half = std::min(bytes, kfuse::device_facts(space).memory_free / 2) / 512 * 256;
  using Bytes = Kokkos::View<std::uint8_t*, typename Space::memory_space>;
  Bytes const from("kfuse::bench::copy::from", half), to("kfuse::bench::copy::to", half);
  auto const seconds = median_seconds(space, [&] { kfuse::copy_bytes(space, to.data(), from.data(), half); });
  return seconds ? std::optional(2 * double(half) / *seconds) : std::nullopt;
}

// Operations a second of a product of square matrices.
template <class Space>
std::optional<double> matrix_speed(Space const& space, kfuse::ElementType type) {
  return with_element(type, [&]<class Element>(std::type_identity<Element>) {
    int const n = on_host<Space> ? 256 : 8192;
    Memory<Space> memory(space, 3 * sizeof(Element) * std::size_t(n) * n);
    auto const a = random<Element>(memory, -1, 1, 1, n, n), b = random<Element>(memory, -1, 1, 1, n, n);
    auto const d = empty<Element>(memory, 1, n, n);
    kfuse::Blas<Space> blas(space);
    auto const seconds = median_seconds(space, [&] { kfuse::matmul(space, blas, a, b, d); });
    return seconds ? std::optional(2.0 * n * n * n / *seconds) : std::nullopt;
  });
}

}  // namespace bench

#endif
