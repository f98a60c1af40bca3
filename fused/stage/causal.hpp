// SPDX-License-Identifier: Apache-2.0
// causal_mask(variant, queries, keys): scores of keys that a query must not see become -infinity.
#ifndef KFUSE_FUSED_STAGE_CAUSAL_HPP
#define KFUSE_FUSED_STAGE_CAUSAL_HPP

#include <kfuse/fused/stage/load_store.hpp>

#include <string>
#include <string_view>

namespace kfuse {

// Query q sees the keys
//   none          all
//   upper_left    k <= q                     the first query is the first token
//   lower_right   k <= q + keys - queries    the last query is the last token
enum class CausalVariant { none, upper_left, lower_right };

// Rows are [..., queries], columns are keys.
struct MaskFuture {
  using stage = ElementStage;

  CausalVariant variant;
  int queries, keys;

  void check(std::string_view where, Shape shape) const {
    if (variant == CausalVariant::none || shape.rows == 0) return;
    impl::check_row_numbers(where, "causal", shape);
    impl::check(variant == CausalVariant::upper_left || variant == CausalVariant::lower_right, where, [&] {
      return "causal: there is no variant " + std::to_string(int(variant)) + "; give it one of CausalVariant";
    });
    impl::check(queries > 0 && shape.rows % queries == 0, where, [&] {
      return "causal: " + std::to_string(shape.rows) + " rows are not [..., queries] of " + std::to_string(queries) +
             " queries (a row sees what comes before its query); say in options.queries how many there are";
    });
    impl::check(shape.columns == keys, where, [&] {
      return "causal: rows have " + std::to_string(shape.columns) + " columns, but there are " + std::to_string(keys) +
             " keys; give one column for each";
    });
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, Place at) const {
    if (variant == CausalVariant::none) return;
    int const query = int(unsigned(at.row) % unsigned(queries));
    int const last = query + (variant == CausalVariant::lower_right ? keys - queries : 0);
#pragma unroll
    for (int i = 0; i < X::width; ++i)
      if (at.column + i > last) x[i] = -Kokkos::Experimental::infinity_v<typename X::Real>;
  }
};

constexpr MaskFuture causal_mask(CausalVariant variant, int queries, int keys) {
  return {variant, queries, keys};
}

}  // namespace kfuse

#endif
