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

// The memory of a pack of `bytes`, moved in accesses of at most 16: as words, since GPU compilers give elements that
// are narrower registers of their own, and do not always make one access of many narrow ones.
template <int bytes>
struct Words {
  static constexpr int alignment = bytes < 16 ? bytes : 16, per_chunk = alignment / 4, chunks = bytes / alignment;
  static_assert(bytes % 4 == 0 && bytes % alignment == 0);
  struct [[gnu::may_alias]] alignas(alignment) Chunk {
    std::uint32_t word[per_chunk];
  };
};
template <class Element, int width>
using WordsOf = Words<int(sizeof(Element)) * width>;

// Element number `i` of those in words(0), words(1), ...
template <class Element, class F>
KOKKOS_FUNCTION auto element_of(F const& words, int i) {
  if constexpr (sizeof(Element) == 8) {
    struct {
      std::uint32_t word[2];
    } const both{{words(2 * i), words(2 * i + 1)}};
    return to_real(Kokkos::bit_cast<Element>(both));
  } else if constexpr (sizeof(Element) == 4) {
    return to_real(Kokkos::bit_cast<Element>(words(i)));
  } else if constexpr (std::is_same_v<Element, bf16>) {
    return Kokkos::bit_cast<float>(i % 2 == 0 ? words(i / 2) << 16 : words(i / 2) & 0xffff0000u);
  } else if constexpr (sizeof(Element) == 2) {
    return to_real(Kokkos::bit_cast<Element>(std::uint16_t(words(i / 2) >> (16 * (i % 2)))));
  } else {
    return to_real(Kokkos::bit_cast<Element>(std::uint8_t(words(i / 4) >> (8 * (i % 4)))));
  }
}

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

// `width` consecutive elements as they are in memory.
template <class Element, int width, Access access>
struct Packed {
  Element element[width];
};
template <class Element, int width>
struct Packed<Element, width, Access::wide> {
  using Words = impl::WordsOf<Element, width>;
  typename Words::Chunk chunk[Words::chunks];
};

// The X::width elements from `from` on.
template <class X, class Element>
KOKKOS_FUNCTION Packed<Element, X::width, X::access> fetch(Element const* from) {
  Packed<Element, X::width, X::access> packed;
  if constexpr (X::access == Access::wide) {
    using Words = impl::WordsOf<Element, X::width>;
    auto const* memory = reinterpret_cast<typename Words::Chunk const*>(from);
#pragma unroll
    for (int c = 0; c < Words::chunks; ++c) packed.chunk[c] = memory[c];
  } else {
#pragma unroll
    for (int i = 0; i < X::width; ++i) packed.element[i] = from[i];
  }
  return packed;
}

// x = the elements' values.
template <class Element, class X>
KOKKOS_FUNCTION void unpack(Packed<Element, X::width, X::access> const& packed, X& x) {
  if constexpr (X::access == Access::wide) {
    using Words = impl::WordsOf<Element, X::width>;
    auto const words = [&](int i) { return packed.chunk[i / Words::per_chunk].word[i % Words::per_chunk]; };
#pragma unroll
    for (int i = 0; i < X::width; ++i) x[i] = impl::element_of<Element>(words, i);
  } else {
#pragma unroll
    for (int i = 0; i < X::width; ++i) x[i] = to_real(packed.element[i]);
  }
}

// x = the X::width elements from `from` on.
template <class Element, class X>
KOKKOS_FUNCTION void read(Element const* from, X& x) {
  unpack(fetch<X>(from), x);
}

// x as it would be read again once it was written as elements.
template <class Element, class X>
KOKKOS_FUNCTION void round_to(X& x) {
  if constexpr (impl::in_pairs<Element> && X::width % 2 == 0) {
#pragma unroll
    for (int i = 0; i < X::width; i += 2) {
      std::uint32_t const pair = impl::pair_bits<Element>(impl::for_rounding(x[i]), impl::for_rounding(x[i + 1]));
      for (int k = 0; k < 2; ++k) x[i + k] = impl::element_of<Element>([=](int) { return pair; }, k);
    }
  } else {
    for (auto& v : x) v = typename X::Real(to_real(from_real<Element>(v)));
  }
}

// The X::width elements from `to` on = x, rounded to nearest.
template <class Element, class X>
KOKKOS_FUNCTION void write(Element* to, X const& x) {
  if constexpr (X::access == Access::wide) {
    using Words = impl::WordsOf<Element, X::width>;
    constexpr int in_chunk = Words::per_chunk * 4 / int(sizeof(Element));  // elements
    auto* const memory = reinterpret_cast<typename Words::Chunk*>(to);
#pragma unroll
    for (int c = 0; c < Words::chunks; ++c) {
      typename Words::Chunk chunk;
      if constexpr (impl::in_pairs<Element>) {
#pragma unroll
        for (int i = 0; i < Words::per_chunk; ++i)
          chunk.word[i] = impl::pair_bits<Element>(impl::for_rounding(x[c * in_chunk + 2 * i]),
                                                   impl::for_rounding(x[c * in_chunk + 2 * i + 1]));
      } else {
        struct {
          Element value[in_chunk];
        } elements;
        for (int i = 0; i < in_chunk; ++i) elements.value[i] = from_real<Element>(x[c * in_chunk + i]);
        chunk = Kokkos::bit_cast<typename Words::Chunk>(elements);
      }
      memory[c] = chunk;
    }
  } else {
    for (int i = 0; i < X::width; ++i) to[i] = from_real<Element>(x[i]);
  }
}

}  // namespace kfuse

#endif
