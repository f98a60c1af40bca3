// SPDX-License-Identifier: Apache-2.0
// mask(m): values whose mask is 0 become -infinity, or any number that is given. attention_mask(...): -infinity for
// what the rows of attention scores do not see.
#ifndef KFUSE_FUSED_STAGE_MASK_HPP
#define KFUSE_FUSED_STAGE_MASK_HPP

#include <kfuse/fused/attention_mask.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

namespace kfuse {

template <class Memory = void>
struct Mask {
  using stage = ElementStage;
  using memory_space = Memory;
  static constexpr int extra_registers = 8;

  Tensor<std::uint8_t const, 2> visible;  // [rows, columns]
  double value;                           // of what is hidden

  auto reads() const { return std::array{span_of(visible)}; }
  void check(std::string_view where, Shape shape) const { impl::check_matrix(visible, where, shape); }
  // The bytes of a pack, as few as two of them (of doubles), in words: of bytes, a compiler makes registers.
  template <class X>
  struct Fetched {
    static constexpr int size = X::access == Access::single ? 1 : X::width < 4 ? X::width : 4;
    using Word =
        std::conditional_t<size == 1, std::uint8_t, std::conditional_t<size == 2, std::uint16_t, std::uint32_t>>;
    struct [[gnu::may_alias]] alignas(X::access == Access::wide ? X::width : 1) Words {
      Word word[X::width / size];
    };
    Words words;
    KOKKOS_FUNCTION bool hides(int i) const { return (words.word[i / size] & Word(0xff) << 8 * (i % size)) == 0; }
  };
  template <class X>
  KOKKOS_FUNCTION Fetched<X> fetch(Place at) const {
    return {*reinterpret_cast<typename Fetched<X>::Words const*>(visible.at(at.row, at.column))};
  }
  template <class X>
  KOKKOS_FUNCTION void take(X& x, Fetched<X> const& fetched, Place) const {
#pragma unroll
    for (int i = 0; i < X::width; ++i)
      if (fetched.hides(i)) x[i] = typename X::Real(value);
  }
};

// Rows are [batch, heads, queries], columns are keys.
struct MaskScores {
  using stage = ElementStage;

  AttentionMask mask;
  int batch, heads;

  auto reads() const {
    Span lengths = span_of(make_tensor(mask.lengths, mask.lengths ? batch : 0));
    Span visible = span_of(
        Tensor<std::uint8_t const, 2>{mask.visible, {mask.visible ? batch : 0, mask.keys}, {mask.visible_stride, 1}});
    lengths.element_bytes = visible.element_bytes = 0;
    lengths.name = "lengths", visible.name = "visible";
    return std::array{lengths, visible};
  }
  void check(std::string_view where, Shape shape) const {
    auto const sizes = [&] {
      return " of batch " + std::to_string(batch) + ", " + std::to_string(heads) + " heads, " +
             std::to_string(mask.queries) + " queries and " + std::to_string(mask.keys) + " keys";
    };
    impl::check(batch >= 0 && heads > 0 && mask.queries >= 0, where, [&] {
      return "attention_mask: there are no scores" + sizes() + "; give it at least one head, and nothing negative";
    });
    impl::check(shape.columns == mask.keys && shape.rows == std::ptrdiff_t(batch) * heads * mask.queries, where, [&] {
      return "attention_mask: the scores, " + impl::rows_text(shape) + ", are not those" + sizes() +
             "; give it [batch * heads * queries, keys]";
    });
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    int const q = int(at.row % mask.queries), batch = int(at.row / (std::ptrdiff_t(heads) * mask.queries));
    int const end = mask.end(batch, q);
    for (int i = 0; i < X::width; ++i)
      if (at.column + i >= end || !mask.shows(batch, at.column + i))
        x[i] = -Kokkos::Experimental::infinity_v<typename X::Real>;
  }
};

// m: std::uint8_t, [rows, columns]; 0 hides. PyTorch's masked_fill with ~m: the value may be any number.
template <TensorLike M>
auto mask(M const& m, double value = -std::numeric_limits<double>::infinity()) {
  return Mask<typename impl::MemoryOf<M>::type>{impl::tensor<2>(m, "kfuse", "mask"), value};
}
inline MaskScores attention_mask(AttentionMask const& mask, int batch, int heads) {
  return {mask, batch, heads};
}

}  // namespace kfuse

#endif
