// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/rope_qkv.hpp>

#include <vector>

#include "bench.hpp"

namespace {

struct RopeQkv {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const batch = sizes["batch"], sequence = sizes["sequence"], rows = sizes.product({"batch", "sequence"});
    int const heads = sizes["heads"], kv_heads = sizes["kv_heads"], head_dim = sizes["head_dim"];
    int const queries = sizes.product({"heads", "head_dim"}, 2) / 2,
              keys = sizes.product({"kv_heads", "head_dim"}, 4) / 4;
    std::vector<int> position_of(rows);
    for (int r = 0; r < rows; ++r) position_of[r] = r % sequence;

    auto const qkv = bench::random<Element>(memory, -1, 1, rows, queries + 2 * keys);
    auto const table = bench::random<float>(memory, -1, 1, sequence, head_dim);  // no angles, but numbers all the same
    auto const positions = bench::given(memory, position_of);
    auto const rotated = bench::empty<Element>(memory, rows, queries + keys);  // for eager execution
    auto const q = bench::empty<Element>(memory, rows, queries);
    auto const k = bench::empty<Element>(memory, batch, kv_heads, sequence, head_dim);
    auto const v = bench::empty<Element>(memory, batch, kv_heads, sequence, head_dim);

    // Head `h` of row `r`, turned by the angles of the row's position; the heads of V are not turned.
    auto const head = [=](std::ptrdiff_t r, int h) {
      auto const row = bench::row<Space>(qkv, r), angles = bench::row<Space>(table, position_of[r]);
      std::vector<double> const x(row.begin() + h * head_dim, row.begin() + (h + 1) * head_dim);
      auto y = x;
      int const half = head_dim / 2;
      for (int i = 0; i < half && h < heads + kv_heads; ++i) {
        y[i] = x[i] * angles[i] - x[i + half] * angles[i + half];
        y[i + half] = x[i + half] * angles[i] + x[i] * angles[i + half];
      }
      return y;
    };
    auto const query_row = [=](std::ptrdiff_t r) {
      std::vector<double> values;
      for (int h = 0; h < heads; ++h)
        for (double const value : head(r, h)) values.push_back(value);
      return values;
    };
    auto const cached = [=](int first_head) {
      return [=](std::ptrdiff_t place) {  // [batch, kv_heads, sequence]
        auto const b = place / (std::ptrdiff_t(kv_heads) * sequence), token = place % sequence;
        return head(b * sequence + token, first_head + int(place / sequence % kv_heads));
      };
    };
    auto const checked = [](bench::Output output) {
      output.floor = 1;  // the products, not their difference, are what is rounded
      output.rows_checked = 64;
      return output;
    };
    return {
        .fused = [=](bench::Context<Space> const& on) { kfuse::rope_qkv(on.space, qkv, table, positions, q, k, v); },
        .eager =
            [=](bench::Context<Space> const& on) {
              kfuse::fuse(on.space, "kfuse::eager::rope",
                          kfuse::load(kfuse::columns(qkv, 0, queries + keys)) |
                              kfuse::rope(table, positions, {.head_dim = head_dim}) | kfuse::store(rotated));
              kfuse::fuse(on.space, "kfuse::eager::copy",
                          kfuse::load(kfuse::columns(rotated, 0, queries)) | kfuse::store(q));
              kfuse::fuse(
                  on.space, "kfuse::eager::append",
                  kfuse::load(kfuse::columns(rotated, queries, keys)) | kfuse::store_heads(k, positions, 0, sequence));
              kfuse::fuse(on.space, "kfuse::eager::append",
                          kfuse::load(kfuse::columns(qkv, queries + keys, keys)) |
                              kfuse::store_heads(v, positions, 0, sequence));
            },
        .outputs = {checked(bench::output("q", q, query_row)), checked(bench::output("k", k, cached(heads))),
                    checked(bench::output("v", v, cached(heads + kv_heads)))}};
  }
};

bench::Register<RopeQkv> const entry(
    "rope_qkv", "rows [Q | K | V]: Q and K rotated, K and V into the cache",
    {{"batch", 1}, {"sequence", 2048}, {"heads", 32}, {"kv_heads", 8}, {"head_dim", 128}});

}  // namespace
