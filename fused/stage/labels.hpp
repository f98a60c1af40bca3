// SPDX-License-Identifier: Apache-2.0
// Labels: the classes of rows, as losses look them up.
#ifndef KFUSE_FUSED_STAGE_LABELS_HPP
#define KFUSE_FUSED_STAGE_LABELS_HPP

#include <kfuse/core/chain.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace kfuse::impl {

// The classes of rows. Which of the two integer types they have is known at run time, so that kernels are compiled
// once.
struct Labels {
  static constexpr int ignored = -1, outside = -2;

  void const* data;
  int rows, label_bytes, classes;
  std::int64_t ignore_index;

  // In [0, classes), or one of the above. What is to be ignored is compared before anything else.
  KOKKOS_FUNCTION int operator()(std::ptrdiff_t row) const {
    std::int64_t const label =
        label_bytes == 8 ? static_cast<std::int64_t const*>(data)[row] : static_cast<int const*>(data)[row];
    return label == ignore_index ? ignored : label < 0 || label >= classes ? outside : int(label);
  }
  Span span() const {
    return {data, 1, std::ptrdiff_t(rows) * label_bytes, 0, 0, -1};  // not read in packs
  }
};

// Makes labels of a tensor of int or std::int64_t.
template <std::signed_integral Label>
Labels make_labels(Tensor<Label const, 1> const& labels, int classes, std::int64_t ignore_index) {
  static_assert(sizeof(Label) == 4 || sizeof(Label) == 8, "kfuse: labels are int or std::int64_t");
  return {labels.data, labels.extent(0), int(sizeof(Label)), classes, ignore_index};
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
