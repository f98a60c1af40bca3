// SPDX-License-Identifier: Apache-2.0
// The row executor: the plan, every width, and bits that depend on the row alone. What it does with lanes is tested
// with simulated_lanes.
#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/log_sum_exp.hpp>
#include <kfuse/fused/stage/norm.hpp>
#include <kfuse/fused/stage/rope.hpp>
#include <kfuse/fused/stage/softmax.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::fuse;
using kfuse::load;
using kfuse::store;
using kfuse::impl::flat_plan;
using kfuse::impl::reducing_plan, kfuse::impl::RowKind;
using kfuse::impl::RowLayout;
using kfuse::impl::RowPath;
using namespace kfuse::test;

// y = x / sqrt(mean(x^2) + epsilon): one reduction.
std::vector<double> normed(std::vector<double> const& x, int columns, double epsilon) {
  std::vector<double> y(x.size());
  for (std::size_t first = 0; first < x.size(); first += columns) {
    double squares = 0;
    for (int c = 0; c < columns; ++c) squares += x[first + c] * x[first + c];
    for (int c = 0; c < columns; ++c) y[first + c] = x[first + c] / std::sqrt(squares / columns + epsilon);
  }
  return y;
}
// y = exp(x) / sum(exp(x)): two.
std::vector<double> softmaxed(std::vector<double> const& x, int columns) {
  std::vector<double> y(x.size());
  for (std::size_t first = 0; first < x.size(); first += columns) {
    double sum = 0;
    for (int c = 0; c < columns; ++c) sum += std::exp(x[first + c]);
    for (int c = 0; c < columns; ++c) y[first + c] = std::exp(x[first + c]) / sum;
  }
  return y;
}

// The chain load | stages | store on memory of the given place; checks that nothing else was touched.
template <class Element, class Stages>
std::vector<double> run(std::vector<double> const& x, int columns, Stages const& stages, Place2D place = {}) {
  int const rows = int(x.size()) / columns;
  GuardedMatrix<Element> const in(rows, columns, x, place), out(rows, columns, place);
  fuse(another_instance(), "test", load(in.const_view()) | stages | store(out.view()));
  CHECK(out.guards_intact());
  return out.values();
}

// What a chain of these element types, in and out, is taken for.
template <class In, class Out, class... S>
constexpr RowKind kind_of(S const&...) {
  return kfuse::impl::row_kind<kfuse::Chain<kfuse::Load<In, void>, S..., kfuse::Store<Out, void>>>;
}
TEST_CASE("the kind of a row follows from the stages and their element types") {
  auto const is = [](RowKind const& a, RowKind const& b) {
    return a.several_reductions == b.several_reductions && a.input_chunks == b.input_chunks &&
           a.pack_registers == b.pack_registers && a.in_double == b.in_double && a.computes == b.computes;
  };
  kfuse::RootMeanSquare<> const squares(1e-6);
  CHECK(is(kind_of<double, double>(squares), {false, 1, 4, true, false}));
  CHECK(is(kind_of<float, float>(squares), {false, 1, 4, false, false}));
  CHECK(is(kind_of<bf16, bf16>(squares), {false, 1, 8, false, false}));
  CHECK(is(kind_of<double, bf16>(squares), {false, 0, 16, true, false}));
  CHECK(is(kind_of<bf16, double>(squares), {false, 1, 16, true, false}));
  CHECK(is(kind_of<double, double>(kfuse::Center(), squares, kfuse::gelu()), {true, 1, 4, true, false}));
  CHECK(is(kind_of<double, double>(kfuse::log_softmax()), {false, 1, 4, true, true}));
  CHECK(is(kind_of<float, float>(kfuse::log_softmax()), {false, 1, 4, false, true}));
}
TEST_CASE("the plan is the smallest layout that holds a row, and depends on the chain and its length alone") {
  struct Line {
    int columns, width;
    kfuse::impl::RowPlan (*plan)(int columns, int width);
    RowPath path;
    RowLayout layout;
    int segments;
  };
  constexpr RowKind one_input{.input_chunks = 1, .pack_registers = 8},
      two_inputs{.several_reductions = true, .input_chunks = 2, .pack_registers = 8}, no_input{.pack_registers = 8},
      floats{.input_chunks = 1, .pack_registers = 4}, two_of_floats{.input_chunks = 2, .pack_registers = 4},
      doubles{.several_reductions = true, .input_chunks = 1, .pack_registers = 4, .in_double = true},
      one_of_double{.input_chunks = 1, .pack_registers = 4, .in_double = true},
      computing{.several_reductions = true, .input_chunks = 1, .in_double = true, .computes = true};
  auto const one = reducing_plan<one_input>, two = reducing_plan<two_inputs>, no_inputs = reducing_plan<no_input>,
             one_of_float = reducing_plan<floats>, two_of_float = reducing_plan<two_of_floats>,
             two_in_double = reducing_plan<doubles>, two_that_compute = reducing_plan<computing>,
             one_in_double = reducing_plan<one_of_double>;
  for (Line const& line : {
           Line{1, 8, one, RowPath::held, {8, 1}, 1},
           Line{64, 8, one, RowPath::held, {8, 1}, 1},
           Line{65, 8, one, RowPath::held, {8, 2}, 1},
           Line{512, 8, one, RowPath::held, {32, 2}, 1},
           Line{4096, 8, one, RowPath::held, {256, 2}, 1},
           Line{4096, 8, two, RowPath::held, {128, 4}, 1},
           Line{4096, 4, one_of_float, RowPath::held, {512, 2}, 1},
           Line{4097, 4, one_of_float, RowPath::wide, {512, 4}, 1},
           Line{16384, 4, two_of_float, RowPath::wide, {1024, 4}, 1},
           Line{16385, 4, two_of_float, RowPath::passes, {512, 16}, 1},
           Line{128, 2, two_in_double, RowPath::held, {16, 4}, 1},
           Line{1024, 2, two_in_double, RowPath::held, {128, 4}, 1},
           Line{16384, 2, two_in_double, RowPath::wide, {1024, 8}, 1},
           Line{16385, 2, two_in_double, RowPath::passes, {512, 16}, 2},
           Line{16385, 2, two_that_compute, RowPath::passes, {256, 32}, 2},
           Line{2048, 2, one_in_double, RowPath::wide, {256, 4}, 1},
           Line{8192, 8, one, RowPath::wide, {256, 4}, 1},
           Line{32768, 8, one, RowPath::wide, {512, 8}, 1},
           Line{32768, 8, two, RowPath::wide, {1024, 4}, 1},
           Line{32769, 8, one, RowPath::wide, {1024, 8}, 1},
           Line{32769, 8, no_inputs, RowPath::passes, {512, 16}, 1},
           Line{65537, 8, no_inputs, RowPath::passes, {512, 16}, 2},
           Line{131072, 8, one, RowPath::passes, {512, 16}, 2},
           Line{16384, 2, two, RowPath::passes, {512, 16}, 1},
           Line{16386, 2, two, RowPath::passes, {512, 16}, 2},
           Line{4096, 8, flat_plan, RowPath::flat, {256, 2}, 1},
           Line{4097, 8, flat_plan, RowPath::flat, {256, 2}, 2},
           Line{131072, 8, flat_plan, RowPath::flat, {256, 2}, 32},
       }) {
    CAPTURE(line.columns);
    auto const plan = line.plan(line.columns, line.width);
    CHECK(plan.path == line.path);
    CHECK(plan.layout == line.layout);
    CHECK(plan.segments == line.segments);
    CHECK(plan.width == line.width);
  }
}
// The plans of all kinds of rows, and of chains without reductions.
template <std::size_t... i>
std::vector<kfuse::impl::RowPlan (*)(int, int)> all_plans(std::index_sequence<i...>) {
  return {flat_plan, reducing_plan<RowKind{.several_reductions = i % 2 == 1,
                                           .input_chunks = int(i / 2 % 3),
                                           .pack_registers = i / 6 % 3 == 0   ? 4
                                                             : i / 6 % 3 == 1 ? 8
                                                                              : 16,
                                           .in_double = i / 6 % 3 == 2 || i / 18 == 1,
                                           .computes = i / 18 == 1}>...};
}
TEST_CASE("every plan covers its row, and no segment of it is empty") {
  int wrong = 0;
  for (int const width : {1, 2, 4, 8})
    for (auto const plan_of : all_plans(std::make_index_sequence<36>()))
      for (int columns = 1; columns < 300000; columns += columns < 5000 ? 1 : 997) {
        auto const plan = plan_of(columns, width);
        auto const held = std::int64_t(plan.segment_columns()) * plan.segments;
        wrong += held < columns || held - plan.segment_columns() >= columns;
        wrong += (plan.path == RowPath::held || plan.path == RowPath::wide) && plan.segments != 1;
      }
  CHECK(wrong == 0);
}
TEST_CASE("a divisor divides every number below 2^31 as the language does") {
  std::uint64_t random = 1;
  std::vector<unsigned> divisors{1, 2, 3, 5, 7, 48, 64, 255, 256, 257, 1792, 65535, 65537, 1u << 30, 2147483647u};
  for (int i = 0; i < 200; ++i)
    divisors.push_back(unsigned((random = random * 6364136223846793005u + 1442695040888963407u) >> 33) | 1u);
  int wrong = 0;
  for (unsigned const d : divisors) {
    kfuse::impl::Divisor const divisor(d);
    std::uint64_t const end = std::uint64_t(1) << 31, step = d > (1u << 20) ? d : end / 199;
    for (std::uint64_t base = 0; base < end; base += step)
      for (std::uint64_t const near : {base / d * d, base / d * d + 1, base / d * d + d - 1, base})
        if (near < end) wrong += divisor.quotient(unsigned(near)) != unsigned(near) / d;
    wrong += divisor.quotient(2147483647u) != 2147483647u / d;
  }
  CHECK(wrong == 0);
}

// CASES P06
constexpr int widths[] = {1,   2,   3,   5,   7,   8,   15,  16,  17,  31,   33,   48,   63,   64,   65,   100,
                          127, 129, 255, 257, 320, 511, 513, 640, 781, 1000, 1023, 1025, 1408, 2816, 3584, 4097};

TEST_CASE_TEMPLATE("rows of any width in memory of any alignment: one reduction", Element, double, float, bf16) {
  for (int const columns : widths)
    for (int const rows : {1, 2, 5}) {
      CAPTURE(columns);
      CAPTURE(rows);
      auto const x = random_values<Element>(std::size_t(rows) * columns, columns);
      auto const y = run<Element>(x, columns, kfuse::RootMeanSquare(1e-5));
      CHECK(deviation(y, normed(x, columns, 1e-5)) <= tolerance<Element>());
      CHECK(run<Element>(x, columns, kfuse::RootMeanSquare(1e-5), {.shift = 1}) == y);
      CHECK(run<Element>(x, columns, kfuse::RootMeanSquare(1e-5), {.shift = 1, .gap = 8}) == y);
    }
}
TEST_CASE_TEMPLATE("rows of any width in memory of any alignment: two reductions", Element, double, float) {
  for (int const columns : widths)
    for (int const rows : {1, 2, 5}) {
      CAPTURE(columns);
      CAPTURE(rows);
      auto const x = random_values<Element>(std::size_t(rows) * columns, columns);
      auto const y = run<Element>(x, columns, kfuse::softmax());
      CHECK(deviation(y, softmaxed(x, columns), 1e-6) <= tolerance<Element>());
      CHECK(run<Element>(x, columns, kfuse::softmax(), {.shift = 1}) == y);
      CHECK(run<Element>(x, columns, kfuse::softmax(), {.gap = 3}) == y);
    }
}
TEST_CASE("rows of any width without a reduction") {
  for (int const columns : {1, 7, 64, 1000, 4096, 4097, 40000, 65536}) {
    auto const x = random_values<bf16>(std::size_t(3) * columns, columns);
    CHECK(run<bf16>(x, columns, kfuse::scale(1)) == x);
    CHECK(run<bf16>(x, columns, kfuse::scale(1), {.shift = 1, .gap = 1}) == x);
  }
}

TEST_CASE("a row's bits depend on the row alone: not on its neighbours, their number, or the run") {
  for (int const columns : {3, 64, 100, 1024, 5000}) {
    CAPTURE(columns);
    int const rows = 1000;
    auto x = random_values<float>(std::size_t(rows) * columns, columns);
    auto const y = run<float>(x, columns, kfuse::softmax());
    CHECK(run<float>(x, columns, kfuse::softmax()) == y);
    for (int const r : {0, 1, 17, 499, 999}) {
      auto const row = [&](std::vector<double> const& v) {
        return std::vector(v.begin() + r * std::ptrdiff_t(columns), v.begin() + (r + 1) * std::ptrdiff_t(columns));
      };
      CHECK(run<float>(row(x), columns, kfuse::softmax()) == row(y));
    }
    // A row of NaNs stays alone.
    std::fill_n(x.begin() + columns, columns, NAN);
    auto const z = run<float>(x, columns, kfuse::softmax());
    CHECK(std::isnan(z[columns]));
    CHECK(std::equal(z.begin() + 2 * columns, z.end(), y.begin() + 2 * columns));
    CHECK(std::equal(z.begin(), z.begin() + columns, y.begin()));
  }
}

// The kernels that share a row among teams, which fuse() launches only where a device has room for them.
template <class Chain>
void run_split(Chain const& chain, kfuse::Shape shape) {
  using Types = kfuse::impl::ChainTypes<Chain>;
  using Real = typename Types::Real;
  auto const plan = kfuse::impl::row_plan<Chain>(shape.columns, Types::width);
  REQUIRE(plan.segments > 1);
  std::size_t const slot = kfuse::impl::slot_bytes<Real>(std::type_identity<Chain>{});
  auto const partials = view_of_nans<float>(Types::row_stages * shape.rows * plan.segments * (slot / sizeof(float)));
  kfuse::impl::launch_passes<Real, Types::width, kfuse::Access::single>(Space(), "test", chain, shape, plan,
                                                                        reinterpret_cast<std::byte*>(partials.data()));
  Kokkos::fence("kfuse::test::run_split");  // before the partial sums are freed
}
TEST_CASE("a long row shared by several teams has the bits of one team's row") {
  for (int const rows : {1, 2})
    for (int const columns : {131072, 131072 + 3}) {
      CAPTURE(columns);
      auto const x = view_of<float>(random_values<float>(std::size_t(rows) * columns, 1), rows, columns);
      auto const y = view_of_nans<float>(rows, columns), z = view_of_nans<float>(rows, columns);
      auto const softmax_to = [&](auto const& out) { return load(x) | kfuse::softmax() | store(out); };
      fuse(Space(), "test", softmax_to(y));
      run_split(softmax_to(z), {rows, columns});
      CHECK(deviation(download(y), softmaxed(download(x), columns), 1e-8) <= 1e-5);
      CHECK(same_bits(y, z));
      auto const norm_to = [&](auto const& out) { return load(x) | kfuse::RootMeanSquare(1e-6) | store(out); };
      fuse(Space(), "test", norm_to(y));
      run_split(norm_to(z), {rows, columns});
      CHECK(same_bits(y, z));
    }
}
TEST_CASE("fuse shares a long row only on a device, and says how many launches that takes") {
  int const columns = 200000;
  auto const x = view_of<float>(random_values<float>(columns, 1), 1, columns);
  auto const y = view_of_nans<float>(1, columns), z = view_of_nans<float>(1, columns);
  kfuse::Workspace<Space> workspace(1 << 20);
  kfuse::Ledger ledger;
  fuse(Space(), "test", load(x) | kfuse::softmax() | store(y));
  CHECK(ledger.launches() == 1);
  fuse(Space(), "test", load(x) | kfuse::softmax() | store(z), workspace);
  CHECK(ledger.launches() == 1 + (kfuse::impl::Backend<Space>::is_host ? 1 : 3));
  CHECK(same_bits(y, z));
}

TEST_CASE("pairs closer together than a pack are found value by value") {
  int const head_dim = 4, heads = 20000, columns = head_dim * heads;
  auto const x = random_values<float>(columns, 1);
  std::vector<double> const table{1, 1, 0, 0, 0, 0.5, 1, 0.25};  // of positions 0 and 1: cosines, sines
  std::vector<double> expected(x);
  for (int h = 0; h < heads; ++h)
    for (int i = 0; i < 2; ++i) {
      int const a = h * head_dim + i, b = a + 2;
      expected[a] = x[a] * table[4 + i] - x[b] * table[6 + i];
      expected[b] = x[b] * table[4 + i] + x[a] * table[6 + i];
    }
  auto const angles = view_of<float>(table, 2, head_dim);
  auto const position = view_of<int>({1}, 1);
  auto const stage = kfuse::rope(angles, position, {.head_dim = head_dim});
  CHECK(deviation(run<float>(x, columns, stage), expected) <= 1e-6);
}

TEST_CASE("no rows or no columns launch nothing, whatever the pointers") {
  kfuse::Ledger ledger;
  kfuse::Tensor<float, 2> const no_rows{nullptr, {0, 5}, {5, 1}}, no_columns{nullptr, {5, 0}, {0, 1}};
  fuse(Space(), "test", load(no_rows) | kfuse::softmax() | store(no_rows));
  fuse(Space(), "test", load(no_columns) | kfuse::softmax() | store(no_columns));
  CHECK(ledger.launches() == 0);
}

TEST_CASE("rows so long that columns could not be counted are refused") {
  int const columns = std::numeric_limits<int>::max();
  kfuse::Tensor<float, 2> const x{nullptr, {1, columns}, {columns, 1}};
  CHECK(contains(error_of([&] { fuse(Space(), "test", load(x) | kfuse::softmax() | store(x)); }), "more than 2^31"));
}

}  // namespace
