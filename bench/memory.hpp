// SPDX-License-Identifier: Apache-2.0
// The tensors of a case: counted before there is any memory, filled, and read back row by row.
#ifndef KFUSE_BENCH_MEMORY_HPP
#define KFUSE_BENCH_MEMORY_HPP

#include <kfuse/core/element.hpp>
#include <kfuse/core/random.hpp>
#include <kfuse/core/tensor.hpp>
#include <kfuse/core/workspace.hpp>

#include <Kokkos_Core.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "arguments.hpp"

namespace bench {

// The memory of a case: one block, or, while counting, addresses that must not be used.
template <class Space>
struct Memory {
  Space space;
  kfuse::Workspace<Space> block;
  bool is_counting;
  std::size_t elsewhere = 0;  // bytes counted in the block that the case will allocate by itself
  std::uint64_t seed = 0;     // of the last random tensor

  explicit Memory(Space const& s) : space(s), block(kfuse::Workspace<Space>::counting()), is_counting(true) {}
  Memory(Space const& s, std::size_t bytes) : space(s), block(bytes), is_counting(false) { block.poison(s); }
};

template <class Element>
struct FillKernel {
  Element* data;
  std::uint64_t seed;
  double low, high;

  KOKKOS_FUNCTION void operator()(std::ptrdiff_t i) const {
    auto const words = kfuse::random_quad({seed, 0}, i / 4, 0);
    double const value = low + (high - low) * ((words.word[i % 4] + 0.5) * 0x1p-32);
    if constexpr (std::integral<Element>)
      data[i] = Element(value);
    else
      data[i] = kfuse::from_real<Element>(kfuse::Real<Element>(value));
  }
};

// Memory of `workspace`. Sizes come from the command line and may be anything.
template <class Element, class Space, std::integral... Extent>
auto take(kfuse::Workspace<Space>& workspace, Extent... extent) {
  double const bytes = (double(sizeof(Element)) * ... * double(extent));
  if (bytes > 0x1p60) throw MemoryError("device memory too small: no device has the 2^60 bytes that these sizes need");
  return workspace.template take<Element>("a tensor of the benchmark", extent...);
}

// A contiguous tensor for results. It holds NaNs.
template <class Element, class Space, std::integral... Extent>
auto empty(Memory<Space>& memory, Extent... extent) {
  return take<Element>(memory.block, extent...);
}

// A contiguous tensor of values spread evenly over [low, high), the same in every run and on every device. Integers are
// cut off.
template <class Element, class Space, std::integral... Extent>
auto random(Memory<Space>& memory, double low, double high, Extent... extent) {
  auto const t = empty<Element>(memory, extent...);
  std::uint64_t const seed = ++memory.seed;
  if (!memory.is_counting)
    Kokkos::parallel_for("kfuse::bench::fill",
                         Kokkos::RangePolicy<Space, Kokkos::IndexType<std::ptrdiff_t>>(memory.space, 0, t.size()),
                         FillKernel<Element>{t.data, seed, low, high});
  return t;
}

// A tensor of the given values, such as indices or positions.
template <class Element, class Space>
auto given(Memory<Space>& memory, std::vector<Element> const& values) {
  auto const t = empty<Element>(memory, std::ptrdiff_t(values.size()));
  if (!memory.is_counting)
    Kokkos::deep_copy(
        Kokkos::View<Element*, typename Space::memory_space, Kokkos::MemoryUnmanaged>(t.data, values.size()),
        Kokkos::View<Element const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(values.data(), values.size()));
  return t;
}

// Row `index` of a contiguous tensor, all leading dimensions taken as one, as doubles on the host. Waits.
template <class Space, class Element, int rank>
std::vector<double> row(kfuse::Tensor<Element, rank> const& t, std::ptrdiff_t index = 0) {
  using Value = std::remove_const_t<Element>;
  std::size_t const columns = t.extent(rank - 1);
  std::vector<Value> copy(columns);
  Kokkos::deep_copy(Kokkos::View<Value*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(copy.data(), columns),
                    Kokkos::View<Value const*, typename Space::memory_space, Kokkos::MemoryUnmanaged>(
                        t.data + index * std::ptrdiff_t(columns), columns));
  std::vector<double> values(columns);
  for (std::size_t i = 0; i < columns; ++i) {
    if constexpr (std::integral<Value>)
      values[i] = double(copy[i]);
    else
      values[i] = double(kfuse::to_real(copy[i]));
  }
  return values;
}

}  // namespace bench

#endif
