// SPDX-License-Identifier: Apache-2.0
// The table of cosines and sines that rope and rope_qkv read.
#ifndef KFUSE_FUSED_ROPE_TABLE_HPP
#define KFUSE_FUSED_ROPE_TABLE_HPP

#include <kfuse/core/element.hpp>
#include <kfuse/fused/rope_frequencies.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <vector>

namespace kfuse {

// [positions, rotary_dim]: in each row the cosines of all pairs, and then the sines, made in double and rounded once.
// It is made on the host, before a model runs: this allocates, copies and waits.
//   auto const table = kfuse::rope_table<Space, float>(kfuse::rope_frequencies(settings, 8192), 8192);
template <class Space, class Element>
auto rope_table(RopeFrequencies const& frequencies, int positions) {
  impl::check(positions >= 0, "rope_table", "positions is negative; give the number of positions");
  Kokkos::View<Element**, Kokkos::LayoutRight, typename Space::memory_space> const table(
      "kfuse::rope_table", std::size_t(positions), std::size_t(frequencies.rotary_dim()));
  auto const host = Kokkos::create_mirror_view(table);
  for (int p = 0; p < positions; ++p) {
    auto const row = rope_table_row(frequencies, p);
    for (std::size_t c = 0; c < row.size(); ++c) host(p, c) = from_real<Element>(row[c]);
  }
  Kokkos::deep_copy(table, host);
  return table;
}

}  // namespace kfuse

#endif
