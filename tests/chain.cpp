// SPDX-License-Identifier: Apache-2.0
// Stages and chains: what a user writes, what a chain moves, and what it refuses.
#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/activation.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/gather.hpp>
#include <kfuse/fused/stage/mask.hpp>
#include <kfuse/fused/stage/norm.hpp>
#include <kfuse/fused/stage/rope.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "mirrored.hpp"
#include "support.hpp"

// Stages of a user's own, as one would write them outside the library.
namespace user {

// x^2
struct Square {
  using stage = kfuse::ElementStage;
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, kfuse::Place) const {
    for (auto& v : x) v *= v;
  }
};

// x / max |x|: a row stage that reduces one number.
struct DivideByLargest {
  using stage = kfuse::RowStage;
  template <class Real>
  KOKKOS_FUNCTION Real identity() const {
    return 0;
  }
  template <class Real, class X>
  KOKKOS_FUNCTION void accumulate(Real& largest, X const& x, kfuse::Place) const {
    for (auto v : x) merge(largest, v < 0 ? -v : v);
  }
  template <class Real>
  KOKKOS_FUNCTION void merge(Real& a, Real b) const {
    a = a > b ? a : b;
  }
  template <class Real>
  KOKKOS_FUNCTION Real finish(Real largest, int) const {
    return largest;
  }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, kfuse::Place, typename X::Real largest) const {
    for (auto& v : x) v /= largest;
  }
};

// The column itself, so that a chain needs no input.
struct ColumnNumbers {
  using stage = kfuse::ElementStage;
  kfuse::Shape size;
  kfuse::Shape shape() const { return size; }
  template <class X>
  KOKKOS_FUNCTION void apply(X& x, kfuse::Place at) const {
    for (int i = 0; i < X::width; ++i) x[i] = typename X::Real(at.column + i);
  }
};

}  // namespace user

namespace {

using kfuse::add;
using kfuse::bf16;
using kfuse::fuse;
using kfuse::load;
using kfuse::store;
using kfuse::weight;
using kfuse::operator|;  // for two stages of a user's own side by side
using namespace kfuse::test;

TEST_CASE("a stage of a user's own fuses like the library's") {
  Space const space = another_instance();
  for (int const columns : {5, 64, 4096, 40000}) {
    CAPTURE(columns);
    auto const x = random_values<float>(3 * columns, columns), b = random_values<float>(columns, 1);
    auto const y = view_of_nans<float>(3, columns);
    fuse(space, "user::square",
         load(view_of<float>(x, 3, columns)) | user::Square() | user::DivideByLargest() |
             kfuse::bias(view_of<float>(b, columns)) | store(y));
    std::vector<double> expected(x.size());
    for (int r = 0; r < 3; ++r) {
      double largest = 0;
      for (int c = 0; c < columns; ++c) largest = std::max(largest, x[r * columns + c] * x[r * columns + c]);
      for (int c = 0; c < columns; ++c)
        expected[r * columns + c] = x[r * columns + c] * x[r * columns + c] / largest + b[c];
    }
    CHECK(deviation(download(y), expected) <= tolerance<float>());
  }
}

TEST_CASE("a stage of a user's own may look at another place, or bring the shape itself") {
  for (int const columns : {7, 64}) {
    auto const y = view_of_nans<float>(2, columns);
    fuse(Space(), "user::mirror",
         user::ColumnNumbers{{2, columns}} | user::Square() | user::MinusMirrored{columns} | store(y));
    std::vector<double> expected;
    for (int r = 0; r < 2; ++r)
      for (int c = 0; c < columns; ++c) expected.push_back(c * c - (columns - 1 - c) * (columns - 1 - c));
    CHECK(download(y) == expected);
  }
}

TEST_CASE("stages run in the order they are written, however they are grouped") {
  auto const x = view_of<float>({1, 2, 3}, 1, 3), y = view_of_nans<float>(1, 3), z = view_of_nans<float>(1, 3);
  auto const one = kfuse::scale(3) | user::Square();
  auto const whole = load(x) | one | kfuse::scale(2) | store(y);
  auto const parts = load(x) | (kfuse::scale(3) | (user::Square() | kfuse::scale(2))) | store(y);
  static_assert(std::is_same_v<decltype(whole), decltype(parts)>);
  static_assert(decltype(whole)::size == 5);
  fuse(Space(), "test", whole);
  CHECK(download(y) == std::vector<double>{18, 72, 162});
  fuse(Space(), "test", load(x) | user::Square() | kfuse::scale(3) | store(z) | kfuse::scale(2) | store(y));
  CHECK(download(z) == std::vector<double>{3, 12, 27});
  CHECK(download(y) == std::vector<double>{6, 24, 54});
}

TEST_CASE("a chain works in double as soon as one of its stages touches doubles") {
  double const tiny = 1e-12;
  auto const y = view_of_nans<double>(1, 1);
  fuse(Space(), "test", load(view_of<float>({1}, 1, 1)) | add(view_of<double>({tiny}, 1, 1)) | store(y));
  CHECK(download(y)[0] == 1 + tiny);
  static_assert(std::is_same_v<kfuse::impl::ChainTypes<decltype(load(y) | user::Square())>::Real, double>);
}

TEST_CASE("a pack holds 16 bytes of the narrowest element, and 8 values at most") {
  kfuse::Tensor<double, 2> const d{};
  kfuse::Tensor<float, 2> const f{};
  kfuse::Tensor<bf16, 2> const b{};
  kfuse::Tensor<kfuse::fp8_e4m3, 2> const q{};
  auto const width = [](auto chain) { return kfuse::impl::ChainTypes<decltype(chain)>::width; };
  CHECK(width(load(d) | store(d)) == 2);
  CHECK(width(load(f) | store(f)) == 4);
  CHECK(width(load(f) | store(b)) == 8);
  CHECK(width(load(b) | store(b)) == 8);
  CHECK(width(load(q) | store(f)) == 8);
  CHECK(width(user::ColumnNumbers{} | user::Square()) == 4);
}

TEST_CASE("a chain moves what its stages say, and less than its stages alone") {
  int const rows = 10, columns = 64, matrix = rows * columns * 2;
  kfuse::Tensor<bf16, 2> const x{nullptr, {rows, columns}, {columns, 1}};
  kfuse::Tensor<float, 1> const w{nullptr, {columns}, {1}};
  auto const chain = load(x) | add(x) | store(x) | kfuse::rmsnorm(w) | store(x);
  auto const fused = kfuse::traffic(chain);
  CHECK(fused.bytes_read == 2 * matrix + columns * 4);
  CHECK(fused.bytes_written == 2 * matrix);
  CHECK(fused.flops == std::size_t(1 + 3 + 2) * rows * columns);
  // As launches of their own, add, the norm and the weight also load and store their values.
  auto const alone = kfuse::traffic_unfused(chain, 2);
  CHECK(alone.bytes_read == fused.bytes_read + 3 * matrix);
  CHECK(alone.bytes_written == fused.bytes_written + 3 * matrix);
  CHECK(alone.flops == fused.flops);
}

TEST_CASE("a chain states one launch with its label and traffic, or nothing for no rows") {
  auto const x = view_of<float>({1, 2}, 1, 2), none = view_of_nans<float>(0, 2);
  kfuse::Ledger ledger(kfuse::Ledger::Execution::none);
  fuse(Space(), "user::scale", load(x) | kfuse::scale(2) | store(x));
  fuse(Space(), "user::nothing", load(none) | kfuse::scale(2) | store(none));
  REQUIRE(ledger.entries().size() == 1);
  CHECK(ledger.entries()[0].label == "user::scale");
  CHECK(ledger.launches() == 1);
  CHECK(ledger.traffic().bytes() == 2 * 2 * 4);
  CHECK(download(x) == std::vector<double>{1, 2});  // stated, not run
}

// What the chain `make(from, to)` throws for two pieces of one buffer.
struct Pieces {
  Kokkos::View<float**, Kokkos::LayoutRight, Space> buffer = view_of<float>(random_values<float>(6 * 16, 1), 6, 16);
  auto part(int first_row, int rows, int first_column, int columns) const {
    return Kokkos::subview(buffer, Kokkos::pair(first_row, first_row + rows),
                           Kokkos::pair(first_column, first_column + columns));
  }
};
template <class C>
std::string refusal(C const& chain) {
  return error_of([&] { fuse(Space(), "user::chain", chain); });
}

TEST_CASE("an output may be exactly an earlier input, and parts of one buffer may lie side by side") {
  Pieces const p;
  auto const a = p.part(0, 4, 0, 8), b = p.part(0, 4, 8, 8);
  CHECK(refusal(load(a) | kfuse::scale(2) | store(a)) == "");
  CHECK(refusal(load(a) | add(b) | store(b)) == "");
  CHECK(refusal(load(a) | store(b)) == "");
  CHECK(refusal(load(p.part(0, 2, 0, 16)) | store(p.part(2, 2, 0, 16))) == "");
  CHECK(refusal(load(p.part(0, 3, 0, 8)) | store(p.part(1, 3, 8, 8))) == "");
}

TEST_CASE("other overlaps are refused before anything is written") {
  Pieces const p;
  auto const before = download(p.buffer);
  auto const a = p.part(0, 4, 0, 8);
  char const* const reads = "user::chain: store: overlaps ";
  CHECK(contains(refusal(load(a) | store(p.part(1, 4, 0, 8))), reads));
  CHECK(contains(refusal(load(a) | store(p.part(0, 4, 1, 8))), reads));
  CHECK(contains(refusal(load(a) | store(p.part(0, 4, 7, 8))), reads));
  CHECK(contains(refusal(load(p.part(0, 4, 8, 8)) | store(a) | add(a)), reads));  // read after it is written
  CHECK(contains(refusal(load(a) | kfuse::bias(Kokkos::subview(p.buffer, 2, Kokkos::pair(0, 8))) | store(a)), reads));
  CHECK(contains(refusal(load(a) | user::MinusMirrored{8} | store(a)), reads));
  auto const two_bytes = kfuse::Tensor<bf16, 2>{reinterpret_cast<bf16*>(p.buffer.data()), {4, 8}, {32, 1}};
  CHECK(contains(refusal(load(a) | store(two_bytes)), reads));
  CHECK(contains(refusal(load(p.part(0, 4, 8, 8)) | store(a) | kfuse::scale(2) | store(a)),
                 "user::chain: store: overlaps store"));
  CHECK(download(p.buffer) == before);
}

TEST_CASE("an output whose rows lie over one another is refused") {
  Pieces const p;
  auto const before = download(p.buffer);
  auto const a = p.part(0, 4, 0, 8);
  for (int const stride : {0, 1, 7}) {
    kfuse::Tensor<float, 2> const folded{p.buffer.data() + 16, {4, 8}, {stride, 1}};
    CHECK(contains(refusal(load(a) | store(folded)), "user::chain: store: its rows overlap"));
  }
  CHECK(download(p.buffer) == before);
}

TEST_CASE("a Tensor is held to what a View is held to") {
  auto const x = view_of_nans<float>(4, 4);
  kfuse::Tensor<float, 2> const transposed{x.data(), {4, 4}, {1, 4}}, negative{x.data(), {-1, 4}, {4, 1}};
  CHECK_THROWS_WITH_AS(load(transposed), doctest::Contains("the last dimension is not contiguous"), kfuse::Error);
  CHECK_THROWS_WITH_AS(load(negative), doctest::Contains("an extent is negative"), kfuse::Error);
}

TEST_CASE("a Tensor of memory has the extents it is given, or is refused") {
  float value = 0;
  constexpr auto most = std::numeric_limits<int>::max();
  CHECK(kfuse::make_tensor(&value, most).extent(0) == most);
  CHECK(kfuse::make_tensor(&value, 3, 0).empty());
  for (std::int64_t const extent : {std::int64_t(-1), std::int64_t(1) << 31, (std::int64_t(1) << 32) + 4,
                                    std::numeric_limits<std::int64_t>::min()}) {
    CHECK(contains(error_of([&] { kfuse::make_tensor(&value, extent); }), "make_tensor: an extent is negative or"));
    CHECK(contains(error_of([&] { kfuse::make_tensor(&value, 2, extent, 3); }), "make_tensor: an extent"));
    CHECK(contains(error_of([&] { kfuse::make_tensor(&value, std::uint64_t(extent)); }), "make_tensor: an extent"));
  }
  auto const matrix = kfuse::make_tensor(&value, 4, 6);
  CHECK(kfuse::columns(matrix, 6, 0).empty());
  CHECK(kfuse::rows(matrix, 1, 3).extent(0) == 3);
  for (auto const& [first, count] : {std::pair(-1, 2), {0, 7}, {6, 1}, {2, -1}, {most, most}}) {
    CHECK(contains(error_of([&] { kfuse::columns(matrix, first, count); }), "is not within [0, 6)"));
    CHECK(contains(error_of([&] { kfuse::rows(matrix, first, count); }), "is not within [0, 4)"));
  }
}

TEST_CASE("scores without queries or heads are no rows to divide by") {
  auto const none = view_of_nans<float>(0, 4), some = view_of_nans<float>(4, 4);
  kfuse::AttentionMask const mask{.queries = 0, .keys = 4};
  CHECK(refusal(load(none) | kfuse::attention_mask(mask, 1, 2) | store(none)).empty());
  CHECK(contains(refusal(load(some) | kfuse::attention_mask(mask, 1, 2) | store(some)),
                 "attention_mask: the scores, 4 rows of 4 columns, are not those"));
  CHECK(
      contains(refusal(load(some) | kfuse::attention_mask({.queries = 4, .keys = 4}, 1, 0) | store(some)), "one head"));
}

TEST_CASE("each View that a stage holds must be in memory that the space reaches") {
  using kfuse::impl::Memories, kfuse::impl::Reaches;
  using Near = Space::memory_space;
  static_assert(Reaches<Space, void>::value && Reaches<Space, Near>::value && !Reaches<Space, Elsewhere>::value);
  static_assert(Reaches<Space, Memories<Near, void>>::value && !Reaches<Space, Memories<Near, Elsewhere>>::value);
  auto const table = view_of_nans<float>(4, 4);
  auto const places = view_of<int>({0, 1, 2, 3}, 4);
  using Both = Memories<Near, Near>;
  static_assert(std::is_same_v<decltype(kfuse::gather(table, places))::memory_space, Memories<Near, Near, void>>);
  Kokkos::View<int, Kokkos::SharedHostPinnedSpace> const status("status");
  static_assert(std::is_same_v<decltype(kfuse::gather(table, places, status))::memory_space,
                               Memories<Near, Near, Kokkos::SharedHostPinnedSpace>>);
  static_assert(std::is_same_v<decltype(kfuse::rope(table, places, {}))::memory_space, Both>);
}

TEST_CASE("a mask of scores is an input: it must not lie in the output, and its bytes count") {
  auto const scores = view_of_nans<float>(2, 8), y = view_of_nans<float>(2, 8);
  kfuse::AttentionMask mask{.queries = 2, .keys = 8};
  mask.visible = reinterpret_cast<std::uint8_t const*>(y.data());
  mask.visible_stride = 8;
  auto const chain = load(scores) | kfuse::attention_mask(mask, 1, 1) | store(y);
  CHECK(contains(refusal(chain), "user::chain: store: overlaps visible"));
  CHECK(kfuse::traffic(chain).bytes_read == 2 * 8 * sizeof(float) + 8);
}

TEST_CASE("a rotation of a negative number of columns is refused") {
  auto const x = view_of_nans<float>(2, 8), y = view_of_nans<float>(2, 8), table = view_of_nans<float>(2, 8);
  auto const places = view_of<int>({0, 1}, 2);
  kfuse::RopeOptions const options{.head_dim = 8, .rotary_dim = -4};
  CHECK(
      contains(refusal(load(x) | kfuse::rope(table, places, options) | store(y)), "rotary_dim must be even, positive"));
}

TEST_CASE("shapes that do not match and chains without a shape are refused by name") {
  auto const x = view_of_nans<float>(3, 4), other = view_of_nans<float>(4, 3);
  auto const w = view_of_nans<float>(3);
  CHECK(contains(refusal(load(x) | add(other) | store(x)),
                 "user::chain: add: shape [4, 3] does not match the chain's [3, 4]"));
  CHECK(contains(refusal(load(x) | kfuse::multiply(other) | store(x)), "multiply: shape [4, 3]"));
  CHECK(contains(refusal(load(x) | weight(w) | store(x)), "weight: has 3 entries, but rows have 4 columns"));
  CHECK(contains(refusal(load(x) | store(other)), "store: shape [4, 3]"));
  CHECK(contains(refusal(user::Square() | kfuse::scale(2)), "no stage of this chain says how many rows there are"));
  Kokkos::View<int*, Kokkos::DefaultExecutionSpace> const indices("indices", 3);
  auto const adds_to_nothing = kfuse::add_gathered(x, indices) | store(x);
  CHECK(contains(error_of([&] { kfuse::impl::shape_of(adds_to_nothing, "user::chain"); }), "begin it with load"));
}

}  // namespace
