// SPDX-License-Identifier: Apache-2.0
#include <kfuse/core/device.hpp>
#include <kfuse/fused/rope.hpp>

#include <vector>

#include "bench.hpp"

namespace {

// Q and K in place.
struct Rope {
  template <class Element, class Space>
  static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
    int const tokens = sizes["tokens"], heads = sizes["heads"], kv_heads = sizes["kv_heads"];
    int const head_dim = sizes["head_dim"], half = head_dim / 2;
    int const queries = sizes.product({"heads", "head_dim"}), keys = sizes.product({"kv_heads", "head_dim"});
    std::vector<int> position_of(tokens);
    for (int t = 0; t < tokens; ++t) position_of[t] = t;

    auto const table = bench::random<float>(memory, -1, 1, tokens, head_dim);  // no angles, but numbers all the same
    auto const positions = bench::given(memory, position_of);
    auto const given_q = bench::random<Element>(memory, -1, 1, tokens, queries);
    auto const given_k = bench::random<Element>(memory, -1, 1, tokens, keys);
    auto const q = bench::empty<Element>(memory, tokens, heads, head_dim);
    auto const k = bench::empty<Element>(memory, tokens, kv_heads, head_dim);
    auto const q_rows = kfuse::make_tensor(q.data, tokens, queries), k_rows = kfuse::make_tensor(k.data, tokens, keys);

    // The heads of a token, turned by the angles of its position. Rows of a result are heads.
    auto const turned = [=](auto const& given, int heads_of_row) {
      return [=](std::ptrdiff_t place) {
        auto const row = bench::row<Space>(given, place / heads_of_row);
        auto const angles = bench::row<Space>(table, position_of[place / heads_of_row]);
        auto const first = row.begin() + place % heads_of_row * head_dim;
        std::vector<double> const x(first, first + head_dim);
        auto y = x;
        for (int i = 0; i < half; ++i) {
          y[i] = x[i] * angles[i] - x[i + half] * angles[i + half];
          y[i + half] = x[i + half] * angles[i] + x[i] * angles[i + half];
        }
        return y;
      };
    };
    auto const checked = [](bench::Output output) {
      output.floor = 1;  // the products, not their difference, are what is rounded
      output.rows_checked = 256;
      return output;
    };
    return {.fused = [=](bench::Context<Space> const& on) { kfuse::rope(on.space, q, k, table, positions); },
            .eager =
                [=](bench::Context<Space> const& on) {
                  for (auto const& [from, to] : {std::pair(given_q, q_rows), std::pair(given_k, k_rows)})
                    kfuse::fuse(
                        on.space, "kfuse::eager::rope",
                        kfuse::load(from) | kfuse::rope(table, positions, {.head_dim = head_dim}) | kfuse::store(to));
                },
            .outputs = {checked(bench::output("q", q, turned(given_q, heads))),
                        checked(bench::output("k", k, turned(given_k, kv_heads)))},
            .restore =
                [=](bench::Context<Space> const& on) {
                  kfuse::copy_bytes(on.space, q.data, given_q.data, std::size_t(q.size()) * sizeof(Element));
                  kfuse::copy_bytes(on.space, k.data, given_k.data, std::size_t(k.size()) * sizeof(Element));
                }};
  }
};

bench::Register<Rope> const entry("rope", "the heads of Q and K rotated in place, in one launch",
                                  {{"tokens", 16384}, {"heads", 32}, {"kv_heads", 8}, {"head_dim", 128}},
                                  {{.at_least = 0.97}});

}  // namespace
