// SPDX-License-Identifier: Apache-2.0
// What stages work on: a few consecutive values of one row, where they stand, and how they come from memory.
#ifndef KFUSE_CORE_VALUES_HPP
#define KFUSE_CORE_VALUES_HPP

#include <kfuse/core/element.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kfuse {

// How values come from memory: in accesses of up to 16 bytes, which all arguments must be aligned to, or one by one.
enum class Access { wide, single };

// `width` consecutive values of one row, as one lane holds them. Real is float or double.
template <class Real_, int width_, Access access_>
struct Values {
  using Real = Real_;
  static constexpr int width = width_;
  static constexpr Access access = access_;

  Real value[width];

  KOKKOS_FUNCTION Real& operator[](int i) { return value[i]; }
  KOKKOS_FUNCTION Real const& operator[](int i) const { return value[i]; }
  KOKKOS_FUNCTION Real* begin() { return value; }
  KOKKOS_FUNCTION Real* end() { return value + width; }
  KOKKOS_FUNCTION Real const* begin() const { return value; }
  KOKKOS_FUNCTION Real const* end() const { return value + width; }
};

// Where values stand: their row, and the column of the first.
struct Place {
  std::ptrdiff_t row;
  int column;
};

namespace impl {

// The memory of `width` elements, moved in accesses of at most 16 bytes.
template <class Element, int width>
struct Pack {
  static constexpr int bytes = int(sizeof(Element)) * width;
  static constexpr int alignment = bytes < 16 ? bytes : 16;
  struct alignas(alignment) Chunk {
    Element value[alignment / sizeof(Element)];
  };
  static constexpr int per_chunk = alignment / int(sizeof(Element)), chunks = bytes / alignment;
};

template <class Element>
constexpr bool in_pairs = std::is_same_v<Element, bf16> || std::is_same_v<Element, fp16>;

template <class Element>
KOKKOS_FUNCTION std::uint32_t pair_bits(float low, float high) {
  if constexpr (std::is_same_v<Element, bf16>)
    return backend::bf16_pair_bits(low, high);
  else
    return backend::fp16_pair_bits(low, high);
}

}  // namespace impl

// x = the elements of the chunks.
template <class Chunk, class X>
KOKKOS_FUNCTION void unpack(Chunk const* chunks, X& x) {
  constexpr int per_chunk = int(sizeof(Chunk) / sizeof(chunks->value[0]));
#pragma unroll
  for (int c = 0; c < X::width / per_chunk; ++c) {
    auto const chunk = chunks[c];
#pragma unroll
    for (int i = 0; i < per_chunk; ++i) x[c * per_chunk + i] = to_real(chunk.value[i]);
  }
}

// x = the X::width elements from `from` on.
template <class Element, class X>
KOKKOS_FUNCTION void read(Element const* from, X& x) {
  if constexpr (X::access == Access::wide) {
    unpack(reinterpret_cast<typename impl::Pack<Element, X::width>::Chunk const*>(from), x);
  } else {
    for (int i = 0; i < X::width; ++i) x[i] = to_real(from[i]);
  }
}

// The X::width elements from `to` on = x, rounded to nearest.
template <class Element, class X>
KOKKOS_FUNCTION void write(Element* to, X const& x) {
  using Pack = impl::Pack<Element, X::width>;
  if constexpr (X::access == Access::wide) {
    auto* chunks = reinterpret_cast<typename Pack::Chunk*>(to);
    for (int c = 0; c < X::width / Pack::per_chunk; ++c) {
      if constexpr (impl::in_pairs<Element> && Pack::per_chunk % 2 == 0) {
        // As words: GPU compilers do not always make one access of many narrow stores.
        struct [[gnu::may_alias]] alignas(Pack::alignment) Words {
          std::uint32_t word[Pack::per_chunk / 2];
        } words;
        for (int i = 0; i < Pack::per_chunk / 2; ++i)
          words.word[i] = impl::pair_bits<Element>(float(x[c * Pack::per_chunk + 2 * i]),
                                                   float(x[c * Pack::per_chunk + 2 * i + 1]));
        reinterpret_cast<Words*>(to)[c] = words;
      } else {
        typename Pack::Chunk chunk;
        for (int i = 0; i < Pack::per_chunk; ++i) chunk.value[i] = from_real<Element>(x[c * Pack::per_chunk + i]);
        chunks[c] = chunk;
      }
    }
  } else {
    for (int i = 0; i < X::width; ++i) to[i] = from_real<Element>(x[i]);
  }
}

}  // namespace kfuse

#endif
