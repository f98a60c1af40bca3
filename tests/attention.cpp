// SPDX-License-Identifier: Apache-2.0
#include "attention.hpp"

#include <kfuse/fused/attention.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::attention;
using kfuse::AttentionOptions;
using kfuse::AttentionPath;
using kfuse::AttentionShape;
using kfuse::bf16;
using kfuse::Causal;
using kfuse::fp16;
using kfuse::Tensor;
using namespace kfuse::test;

// `chosen` is the public function, which takes the path it likes; the others are told theirs.
enum class Way { chosen, with_workspace, rows, split_rows, tiles };

template <class Element>
std::vector<Way> ways(AttentionShape const& s) {
  std::vector<Way> all{Way::chosen, Way::with_workspace, Way::rows, Way::split_rows};
  bool const aligned = s.head_dim * sizeof(Element) % 16 == 0;
  kfuse::impl::AttentionMeans const means{kfuse::element_type<Element>,
                                          aligned ? kfuse::Access::wide : kfuse::Access::single};
  if (!std::is_void_v<kfuse::impl::MatrixUnit<Space>> && allows_tiles(s, means)) all.push_back(Way::tiles);
  return all;
}

template <class Element>
void attend(Tensor<Element, 4> const& q, Tensor<Element, 4> const& k, Tensor<Element, 4> const& v,
            Tensor<Element, 4> const& out, AttentionOptions const& options, Way way) {
  namespace impl = kfuse::impl;
  Space const space = another_instance();
  kfuse::Workspace<Space> workspace(4 << 20);
  workspace.poison(space);
  auto const task = [&] { return impl::attention_task<Element>(q, k, v, out, options); };
  switch (way) {
    case Way::chosen:
      attention(space, q, k, v, out, options);
      break;
    case Way::with_workspace:
      attention(space, q, k, v, out, options, workspace);
      break;
    case Way::rows:
      impl::run_attention(space, task(), AttentionPath::rows, {});
      break;
    case Way::split_rows:
      impl::run_attention(space, task(), AttentionPath::split_rows, impl::take_mixtures(workspace, task()));
      break;
    case Way::tiles:
      impl::run_attention(space, task(), AttentionPath::tiles, {});
  }
  space.fence("kfuse::test::attend");  // before the workspace goes
}

// The result of a way, on memory that held NaNs.
template <class Element>
std::vector<double> attended(Problem const& p, Way way) {
  AttentionShape const& s = p.s;
  auto const q = view_of<Element>(p.q, s.batch, s.heads, s.queries, s.head_dim);
  auto const k = view_of<Element>(p.k, s.batch, s.kv_heads, s.keys, s.head_dim);
  auto const v = view_of<Element>(p.v, s.batch, s.kv_heads, s.keys, s.head_dim);
  auto const out = view_of_nans<Element>(s.batch, s.heads, s.queries, s.head_dim);
  AttentionOptions options{.scale = p.scale, .causal = p.causal};
  Kokkos::View<int*, Space> const lengths("lengths", p.lengths.size());
  Kokkos::View<std::uint8_t**, Kokkos::LayoutRight, Space> const shown("shown", p.shown.empty() ? 0 : s.batch, s.keys);
  if (!p.lengths.empty()) {
    set_elements(lengths, p.lengths);
    options.lengths = kfuse::as_tensor(lengths);
  }
  if (!p.shown.empty()) {
    set_elements(shown, p.shown);
    options.visible = kfuse::as_tensor(shown);
  }
  using kfuse::as_tensor;
  attend(as_tensor(q), as_tensor(k), as_tensor(v), as_tensor(out), options, way);
  return download(out);
}

template <class Element>
void check_all_ways(Problem const& p, std::vector<double> const& expected) {
  for (Way const way : ways<Element>(p.s)) {
    CAPTURE(int(way));
    CHECK(largest_error(attended<Element>(p, way), expected) <= bound<Element>);
  }
}

// CASES P26
TEST_CASE_TEMPLATE("attention is right for every head size", Element, double, float, bf16, fp16) {
  for (int const dim : {1, 7, 8, 32, 33, 40, 64, 72, 80, 96, 112, 128, 136, 160, 192, 256}) {
    CAPTURE(dim);
    auto const p = random<Element>({.s = {1, 2, 1, 65, 65, dim}}, dim);
    check_all_ways<Element>(p, reference(p));
  }
}

TEST_CASE_TEMPLATE("attention sees what the mask shows, whatever the shapes", Element, double, float, bf16, fp16) {
  for (auto const causal : {Causal::no, Causal::yes})
    for (auto const& s : {AttentionShape{3, 4, 2, 1, 300, 64},
                          {3, 6, 2, 5, 150, 64},
                          {3, 2, 2, 40, 130, 128},
                          {3, 2, 1, 70, 33, 32},
                          {3, 3, 3, 22, 22, 32}}) {
      CAPTURE(s.queries);
      CAPTURE(s.keys);
      auto p = random<Element>({.s = s, .causal = causal, .scale = 0.2});
      check_all_ways<Element>(p, reference(p));
      p.lengths = {s.keys / 2, 0, s.keys + 5};
      check_all_ways<Element>(p, reference(p));
      p.shown.resize(s.batch * s.keys);
      for (std::size_t i = 0; i < p.shown.size(); ++i) p.shown[i] = i % 3 == 1 ? 0 : std::uint8_t(i);
      check_all_ways<Element>(p, reference(p));
    }
}

// Weights that do not depend on the queries: what comes out is a mean of what is seen.
template <class Element>
void check_means(Problem p, std::vector<double> const& expected) {
  p.q.assign(p.q_size(), 0);
  if (p.k.empty()) p.k = random_values<Element>(p.k_size(), 5);
  for (Way const way : ways<Element>(p.s)) {
    CAPTURE(int(way));
    CHECK(deviation(attended<Element>(p, way), expected) <= tolerance<Element>());
  }
}
// `values`, one for each key, in all columns of all heads.
std::vector<double> spread(std::vector<double> const& values, int dim) {
  std::vector<double> all;
  for (double v : values) all.insert(all.end(), dim, v);
  return all;
}

// CASES P20, P21, P50, in a head of one, as there, and of eight, which matrix instructions take
TEST_CASE_TEMPLATE("masks are anchored at the last key, and who sees nothing gets zero", Element, float, bf16) {
  for (int const dim : {1, 8}) {
    auto const check = [&](int queries, Causal causal, std::vector<double> const& v,
                           std::vector<std::uint8_t> const& shown, std::vector<double> const& expected) {
      check_means<Element>(
          {.s = {1, 1, 1, queries, int(v.size()), dim}, .causal = causal, .shown = shown, .v = spread(v, dim)},
          spread(expected, dim));
    };
    check(2, Causal::yes, {1, 2, 3, 4, 5}, {}, {2.5, 3});
    check(1, Causal::yes, {1, 2, 3, 4, 5}, {}, {3});
    check(1, Causal::no, {1, 2, 3, 4, 5}, {}, {3});
    check(5, Causal::yes, {10, 20}, {}, {0, 0, 0, 10, 15});
    check(1, Causal::no, {1, 2, 6}, {0, 0, 0}, {0});
    check(4, Causal::yes, {1, 2, 3, 4}, {0, 1, 1, 1}, {0, 2, 2.5, 3});
    std::vector<std::uint8_t> last(256, 0);
    last[255] = 1;
    std::vector<double> v(256, 7);
    v[255] = 0.75;
    check(1, Causal::no, v, last, {0.75});
  }
}

// CASES P24, and keys that the mask hides
TEST_CASE_TEMPLATE("what lies in unused places of a cache has no influence", Element, float, bf16) {
  Problem const clean = [] {
    Problem p{.s = {6, 8, 2, 3, 128, 64}, .causal = Causal::yes, .lengths = {32, 64, 96, 48, 1, 128}};
    p.shown.assign(6 * 128, 1);
    for (int b = 0; b < 6; ++b) p.shown[b * 128 + 10] = 0;
    return random<Element>(p);
  }();
  auto const with = [&](double garbage) {
    Problem p = clean;
    for (int b = 0; b < p.s.batch; ++b)
      for (int g = 0; g < p.s.kv_heads; ++g)
        for (int j = 0; j < p.s.keys; ++j)
          for (int d = 0; d < p.s.head_dim; ++d)
            if (j >= p.length(b) || p.shown[b * p.s.keys + j] == 0)
              p.k[p.key(b, g, j) + d] = p.v[p.key(b, g, j) + d] = garbage;
    return p;
  };
  for (Way const way : ways<Element>(clean.s)) {
    auto const expected = attended<Element>(with(0), way);
    CHECK(largest_error(expected, reference(clean)) <= bound<Element>);
    for (double const garbage : {double(NAN), infinity, -infinity})
      CHECK(attended<Element>(with(garbage), way) == expected);
  }
}

// CASES P25
TEST_CASE("query heads find their kv head") {
  for (auto const& [heads, kv_heads] : {std::pair{28, 4}, {12, 12}, {6, 2}, {9, 3}, {71, 1}, {40, 8}, {48, 16}})
    for (int const queries : {1, 17}) {
      Problem p{.s = {1, heads, kv_heads, queries, 20, 8}, .causal = Causal::yes};
      std::vector<double> expected(p.q_size());
      p.v.resize(p.k_size());
      for (std::size_t i = 0; i < p.v.size(); ++i) p.v[i] = double(i / (20 * 8) + 1);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = int(i / (queries * 8)) * kv_heads / heads + 1;
      check_means<bf16>(p, expected);
    }
}

// CASES P28
TEST_CASE_TEMPLATE("rows have the same bits whether their keys are split or not", Element, double, float, bf16) {
  Problem const sums{.s = {1, 4, 2, 1, 4096, 128}, .v = [] {
                       std::vector<double> v(2 * 4096 * 128);
                       for (std::size_t i = 0; i < v.size(); ++i) v[i] = double(i / 128 % 16);
                       return v;
                     }()};
  check_means<Element>(sums, std::vector<double>(sums.q_size(), 7.5));
  for (int const dim : {128, 33}) {
    auto const p = random<Element>({.s = {2, 4, 2, 3, 700, dim}, .causal = Causal::yes, .lengths = {700, 391}});
    CHECK(attended<Element>(p, Way::rows) == attended<Element>(p, Way::split_rows));
    CHECK(attended<Element>(p, Way::chosen) == attended<Element>(p, Way::with_workspace));
  }
}

// The sequence b of p, and of its queries the last `queries`, alone.
Problem part(Problem const& p, int b, int queries, int capacity) {
  Problem one{.s = p.s, .causal = p.causal, .lengths = {p.length(b)}, .scale = p.scale};
  one.s.batch = 1;
  one.s.queries = queries;
  one.s.keys = capacity;
  for (int h = 0; h < p.s.heads; ++h) {
    auto const first = p.q.begin() + p.query(b, h, p.s.queries - queries);
    one.q.insert(one.q.end(), first, first + queries * p.s.head_dim);
  }
  one.k.assign(one.k_size(), NAN);
  one.v.assign(one.k_size(), NAN);
  for (int g = 0; g < p.s.kv_heads; ++g)
    for (int i = 0; i < std::min(capacity, p.s.keys) * p.s.head_dim; ++i) {
      one.k[one.key(0, g, 0) + i] = p.k[p.key(b, g, 0) + i];
      one.v[one.key(0, g, 0) + i] = p.v[p.key(b, g, 0) + i];
    }
  return one;
}

TEST_CASE_TEMPLATE("a row's bits do not depend on other rows, nor on the room in the cache", Element, float, bf16) {
  auto const p = random<Element>({.s = {2, 4, 2, 40, 300, 64}, .causal = Causal::yes, .lengths = {290, 150}});
  for (Way const way : {Way::rows, Way::split_rows, Way::tiles}) {
    if (way == Way::tiles && std::ranges::count(ways<Element>(p.s), way) == 0) continue;
    auto const all = attended<Element>(p, way);
    for (int b = 0; b < 2; ++b)
      for (int const queries : {1, 17, 40}) {
        auto const some = attended<Element>(part(p, b, queries, 300 + queries), way);
        for (int h = 0; h < p.s.heads; ++h) {
          auto const row = all.begin() + p.query(b, h, 40 - queries);
          CHECK(std::equal(row, row + queries * 64, some.begin() + h * queries * 64));
        }
      }
  }
}

TEST_CASE_TEMPLATE("later tokens never change earlier rows", Element, float, bf16) {
  auto const p = random<Element>({.s = {1, 2, 2, 50, 90, 64}, .causal = Causal::yes});
  for (Way const way : ways<Element>(p.s))
    for (int const last : {0, 20, 48}) {
      Problem changed = p;
      for (int g = 0; g < 2; ++g)
        for (int j = last + 41; j < 90; ++j)
          for (int d = 0; d < 64; ++d) changed.k[p.key(0, g, j) + d] = changed.v[p.key(0, g, j) + d] = 3;
      auto const before = attended<Element>(p, way), after = attended<Element>(changed, way);
      for (int h = 0; h < 2; ++h) {
        auto const first = p.query(0, h, 0), end = p.query(0, h, last + 1);
        CHECK(std::equal(before.begin() + first, before.begin() + end, after.begin() + first));
        CHECK(before[end] != after[end]);
      }
    }
}

TEST_CASE("one call with lengths in device memory serves a growing sequence") {
  Problem p = random<float>({.s = {2, 4, 2, 1, 400, 32}, .causal = Causal::yes});
  auto const q = view_of<float>(p.q, 2, 4, 1, 32), k = view_of<float>(p.k, 2, 2, 400, 32);
  auto const v = view_of<float>(p.v, 2, 2, 400, 32), out = view_of_nans<float>(2, 4, 1, 32);
  Kokkos::View<int*, Space> const lengths("lengths", 2);
  Space const space = another_instance();
  kfuse::Workspace<Space> workspace(1 << 20);
  auto const step = [&] {
    attention(space, q, k, v, out, {.causal = Causal::yes, .lengths = kfuse::as_tensor(lengths)}, workspace);
  };
  for (auto const& now : {std::vector{1, 399}, {129, 400}, {300, 128}}) {
    p.lengths = now;
    set_elements(lengths, now);
    workspace.poison(space);
    step();
    CHECK(largest_error(download(out), reference(p)) <= bound<float>);
  }
}

// [batch, tokens, heads, head_dim] in memory, as a projection leaves Q, K and V side by side, and `shift` elements off.
TEST_CASE_TEMPLATE("heads may lie side by side in rows of tokens", Element, float, bf16) {
  int const batch = 2, heads = 3, tokens = 37, dim = 32, hidden = heads * dim;
  auto const p = random<Element>({.s = {batch, heads, heads, tokens, tokens, dim}, .causal = Causal::yes});
  auto const expected = reference(p);
  for (int const shift : {0, 1})
    for (Way const way : {Way::chosen, Way::with_workspace, Way::split_rows, Way::tiles}) {
      if (way == Way::tiles && (shift != 0 || std::ranges::count(ways<Element>(p.s), way) == 0)) continue;
      CAPTURE(int(way));
      GuardedMatrix<Element> const qkv(batch * tokens, 3 * hidden, Place2D{shift, 8}),
          out(batch * tokens, hidden, Place2D{shift, 16});
      auto const by_head = [&](auto const& view, int first) {
        auto const rows = std::ptrdiff_t(view.stride(0));
        return Tensor<Element, 4>{view.data() + first, {batch, heads, tokens, dim}, {tokens * rows, dim, rows, 1}};
      };
      auto const place = [&](std::size_t i, int columns, int first) {
        int const d = int(i % dim), t = int(i / dim % tokens), h = int(i / dim / tokens % heads),
                  b = int(i / dim / tokens / heads);
        return (std::size_t(b) * tokens + t) * columns + first + h * dim + d;
      };
      std::vector<double> values(std::size_t(batch) * tokens * 3 * hidden);
      for (std::size_t i = 0; i < p.q.size(); ++i) {
        values[place(i, 3 * hidden, 0)] = p.q[i];
        values[place(i, 3 * hidden, hidden)] = p.k[i];
        values[place(i, 3 * hidden, 2 * hidden)] = p.v[i];
      }
      qkv.set(values);
      attend(by_head(qkv.view(), 0), by_head(qkv.view(), hidden), by_head(qkv.view(), 2 * hidden),
             by_head(out.view(), 0), {.causal = Causal::yes}, way);
      auto const actual = out.values();
      std::vector<double> ordered(expected.size());
      for (std::size_t i = 0; i < ordered.size(); ++i) ordered[i] = actual[place(i, hidden, 0)];
      CHECK(largest_error(ordered, expected) <= bound<Element>);
      CHECK(out.guards_intact());
      CHECK(qkv.values() == values);
    }
}

TEST_CASE("attention of nothing writes nothing, and of no keys zeros") {
  for (auto const& s : {AttentionShape{0, 2, 1, 3, 4, 8}, {1, 2, 1, 0, 4, 8}, {1, 0, 0, 3, 4, 8}})
    CHECK(attended<float>(random<float>({.s = s}), Way::chosen).empty());
  Problem const p = random<bf16>({.s = {2, 2, 1, 20, 0, 64}});
  CHECK(attended<bf16>(p, Way::chosen) == std::vector<double>(p.q_size(), 0));
}

TEST_CASE("attention refuses what cannot be right") {
  auto const view = [](int a, int b, int c, int d) {
    return Kokkos::View<float****, Kokkos::LayoutRight, Space>("kfuse::test::view", a, b, c, d);
  };
  auto const q = view(2, 4, 3, 8), k = view(2, 2, 5, 8), v = view(2, 2, 5, 8), out = view(2, 4, 3, 8);
  auto const error = [&](auto const& q_, auto const& k_, auto const& v_, auto const& out_,
                         AttentionOptions const& o = {}) {
    return error_of([&] { attention(Space(), q_, k_, v_, out_, o); });
  };
  CHECK(error(q, k, v, out).empty());
  for (int const kv_heads : {0, 3, 8})
    CHECK(contains(error(q, view(2, kv_heads, 5, 8), view(2, kv_heads, 5, 8), out), "multiple of kv_heads"));
  CHECK(contains(error(q, view(1, 2, 5, 8), view(1, 2, 5, 8), out), "must be those of q"));
  CHECK(contains(error(q, view(2, 2, 5, 9), v, out), "must be those of q"));
  CHECK(contains(error(q, k, view(2, 2, 5, 7), out), "differs from that of k"));
  CHECK(contains(error(q, k, v, view(2, 4, 3, 7)), "must be that of q"));
  CHECK(contains(error(view(1, 1, 1, 257), view(1, 1, 1, 257), view(1, 1, 1, 257), view(1, 1, 1, 257)), "257"));
  CHECK(contains(error(q, k, v, q), "overlaps an input"));
  Tensor<float, 4> const over_v{v.data() + 8, {2, 2, 5, 8}, {80, 40, 8, 1}};
  CHECK(contains(error(k, k, v, over_v), "overlaps an input"));
  Tensor<float, 4> const crossed{out.data(), {2, 4, 3, 8}, {96, 8, 8, 1}};
  CHECK(contains(error(q, k, v, crossed), "its rows overlap"));
  for (double const scale : {-1.0, infinity, double(NAN), 1e-60})
    CHECK(contains(error(q, k, v, out, {.scale = scale}), "scale"));
  Kokkos::View<int*, Space> const lengths("lengths", 3);
  CHECK(contains(error(q, k, v, out, {.lengths = kfuse::as_tensor(lengths)}), "one length for each"));
  Kokkos::View<std::uint8_t**, Kokkos::LayoutRight, Space> const visible("visible", 2, 4);
  CHECK(contains(error(q, k, v, out, {.visible = kfuse::as_tensor(visible)}), "[batch, keys]"));
}

// CASES P45
TEST_CASE("attention states its traffic") {
  using kfuse::attention_traffic;
  AttentionShape const s{1, 1, 1, 1024, 1024, 64};
  CHECK(attention_traffic(s, 2, Causal::no) == kfuse::Traffic{3 * 1024 * 64 * 2, 1024 * 64 * 2, 268435456});
  CHECK(attention_traffic(s, 4, Causal::yes).flops == 134348800);
  CHECK(attention_traffic({2, 4, 2, 2, 5, 8}, 8, Causal::yes) ==
        kfuse::Traffic{(2 * 4 * 2 + 2 * 2 * 2 * 5) * 8 * 8, 2 * 4 * 2 * 8 * 8, 4 * 2 * 4 * (4 + 5) * 8});
  CHECK(attention_traffic({1, 1, 1, 5, 2, 1}, 4, Causal::yes).flops == 4 * (1 + 2));

  auto const p = random<float>({.s = {1, 2, 1, 3, 500, 16}});
  kfuse::Ledger const ledger;
  attended<float>(p, Way::chosen);
  REQUIRE(ledger.entries().size() == 1);
  CHECK(ledger.entries()[0].label == "kfuse::attention");
  CHECK(ledger.entries()[0].launches == 1);
  CHECK(ledger.traffic() == attention_traffic(p.s, 4, Causal::no));
}

TEST_CASE("attention chooses its path by shape, element, alignment and room") {
  using enum kfuse::ElementType;
  using kfuse::Access;
  using kfuse::impl::attention_path;
  AttentionShape const prefill{1, 32, 8, 2048, 2048, 128}, decode{1, 32, 8, 1, 1088, 128};
  kfuse::impl::AttentionMeans const gpu{bf16, Access::wide, true, 1056, 4};
  auto const but = [&](auto const& change) {
    auto means = gpu;
    change(means);
    return means;
  };
  CHECK(attention_path(prefill, gpu) == AttentionPath::tiles);
  CHECK(attention_path(prefill, but([](auto& m) { m.element = fp32; })) == AttentionPath::rows);
  CHECK(attention_path(prefill, but([](auto& m) { m.access = Access::single; })) == AttentionPath::rows);
  CHECK(attention_path(prefill, but([](auto& m) { m.matrix_instructions = false; })) == AttentionPath::rows);
  CHECK(attention_path({1, 32, 8, 2048, 2048, 136}, gpu) == AttentionPath::rows);
  CHECK(attention_path({1, 4, 4, 15, 15, 64}, gpu) == AttentionPath::rows);
  CHECK(attention_path(decode, gpu) == AttentionPath::split_rows);
  CHECK(attention_path(decode, but([](auto& m) { m.teams_at_once = 0; })) == AttentionPath::rows);
  CHECK(attention_path({128, 32, 8, 1, 1088, 128}, gpu) == AttentionPath::rows);
  CHECK(attention_path({1, 32, 8, 1, 128, 128}, gpu) == AttentionPath::rows);
}

}  // namespace
