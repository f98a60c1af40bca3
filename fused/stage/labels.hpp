// SPDX-License-Identifier: Apache-2.0
// Labels: the classes of rows, as losses look them up.
#ifndef KFUSE_FUSED_STAGE_LABELS_HPP
#define KFUSE_FUSED_STAGE_LABELS_HPP

#include <kfuse/core/chain.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace kfuse::impl {

// The classes of rows, int or std::int64_t: known at run time, so that kernels are compiled once. They are read as
// words of four bytes and without branches, once a row.
struct Labels {
  static constexpr int ignored = -1, outside = -2;
  using Word [[gnu::may_alias]] = std::int32_t;
  static_assert(std::endian::native == std::endian::little);

  Word const* words;
  int rows, words_each, classes;
  std::int64_t ignore_index;

  // In [0, classes), or one of the above. What is to be ignored is compared before anything else.
  KOKKOS_FUNCTION int operator()(std::ptrdiff_t row) const {
    Word const* const own = words + row * words_each;
    std::int64_t const low = own[0], high = own[words_each - 1];
    std::int64_t const label = words_each == 1 ? low : high << 32 | (low & 0xffffffff);
    bool const exists = (label >= 0) & (label < classes);
    return label == ignore_index ? ignored : exists ? int(label) : outside;
  }
  Span span() const {
    return {words, 1, std::ptrdiff_t(rows) * words_each * int(sizeof(Word)), 0, 0, -1, "labels"};  // not in packs
  }
};

template <std::signed_integral Label>
Labels make_labels(Tensor<Label const, 1> const& labels, int classes, std::int64_t ignore_index) {
  static_assert(sizeof(Label) == 4 || sizeof(Label) == 8, "kfuse: labels are int or std::int64_t");
  return {reinterpret_cast<Labels::Word const*>(labels.data), labels.extent(0), int(sizeof(Label) / 4), classes,
          ignore_index};
}

// The weights of the labels that count, as one row.
template <class Real>
struct LabelWeights {
  using stage = ElementStage;
  using element = Real;

  Labels labels;
  Tensor<Real const, 1> weight;

  Shape shape() const { return {1, labels.rows}; }
  auto reads() const {
    Span weights = span_of(weight);
    weights.element_bytes = 0;
    return std::array{labels.span(), weights};
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    for (int i = 0; i < X::width; ++i) {
      int const label = labels(at.column + i);
      x[i] = label < 0 ? Real(0) : weight.data ? weight(label) : Real(1);
    }
  }
};

}  // namespace kfuse::impl

#endif
