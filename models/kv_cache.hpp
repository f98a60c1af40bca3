// SPDX-License-Identifier: Apache-2.0
// Where the tokens of a batch stand, and the keys and values of those that have passed.
#ifndef KFUSE_MODELS_KV_CACHE_HPP
#define KFUSE_MODELS_KV_CACHE_HPP

#include <kfuse/core/launch.hpp>
#include <kfuse/core/ledger.hpp>
#include <kfuse/fused/rope_table.hpp>
#include <kfuse/models/layer_weights.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace kfuse {

// The keys and values of one layer. Zeros where no token has been: the eager layer computes with what lies there before
// it masks it.
template <class Space, class Element>
struct KvCache {
  using Memory = Kokkos::View<Element****, Kokkos::LayoutRight, typename Space::memory_space>;
  Memory keys, values;  // [batch, kv_heads, capacity, head_dim]

  KvCache(LayerConfig const& config, int batch, int capacity)
      : keys("kfuse::kv_cache::keys", batch, config.kv_heads, capacity, config.head_dim),
        values("kfuse::kv_cache::values", batch, config.kv_heads, capacity, config.head_dim) {}
  int capacity() const { return int(keys.extent(2)); }
};

namespace impl {

struct AdvanceKernel {
  static constexpr int threads = 128, registers = 32;
  int batch, tokens;
  int* lengths;
  int* positions;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const lanes(team);
    int const sequence = team.league_rank(), past = lengths[sequence];
    lanes.barrier();  // all have read the length before one changes it
    for (int t = lanes.rank(); t < tokens; t += lanes.size())
      positions[std::ptrdiff_t(sequence) * tokens + t] = past + t;
    if (lanes.rank() == 0) lengths[sequence] = past + tokens;
  }
};

}  // namespace impl

// Where the `tokens` current tokens of each of `batch` sequences stand. All of it lies in device memory, so that a
// recorded step serves a growing sequence. The host does not know how far a sequence has come: whoever generates must
// stop at the capacity of the KV cache, beyond which tokens are not stored.
template <class Space>
struct Progress {
  int batch, tokens;
  Kokkos::View<int*, typename Space::memory_space> lengths;    // [batch]: tokens so far, the current ones included
  Kokkos::View<int*, typename Space::memory_space> positions;  // [batch * tokens]: of the current tokens
  Kokkos::View<std::uint8_t**, Kokkos::LayoutRight, typename Space::memory_space>
      visible;  // [batch, keys], or empty: all

  Progress(int b, int t)
      : batch(b), tokens(t), lengths("kfuse::progress::lengths", b), positions("kfuse::progress::positions", rows()) {}
  // The next tokens of sequences that stand as `before` does.
  Progress(Progress const& before, int t)
      : batch(before.batch),
        tokens(t),
        lengths(before.lengths),
        positions("kfuse::progress::positions", rows()),
        visible(before.visible) {}

  int rows() const {
    impl::check(batch >= 0 && tokens >= 0 && std::ptrdiff_t(batch) * tokens <= std::numeric_limits<int>::max(),
                "progress", "batch and tokens must not be negative, nor their product more than 2^31 - 1");
    return batch * tokens;
  }

  // The next `tokens` tokens of each sequence become the current ones. One launch.
  void advance(Space const& space) const {
    if (!Ledger::state("kfuse::advance", 1, {sizeof(int) * batch, sizeof(int) * batch * (tokens + 1), 0})) return;
    impl::launch(space, "kfuse::advance", batch, 0,
                 impl::AdvanceKernel{batch, tokens, lengths.data(), positions.data()});
  }
};

// [positions, head_dim]: what the heads of sequences up to so many positions are rotated by. Empty in families that do
// not rotate.
template <class Space, class Element>
Matrix<Space, Real<Element>> rope_table(LayerConfig const& config, int positions) {
  if (config.family != Family::llama) return {};
  return rope_table<Space, Real<Element>>(rope_frequencies(rope_settings(config), positions), positions);
}

}  // namespace kfuse

#endif
