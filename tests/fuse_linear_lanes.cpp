// SPDX-License-Identifier: Apache-2.0
// The product of few rows as a GPU runs it, lanes and all, on the host: by models of the vendors' matrix instructions,
// and in plain arithmetic.
#include <kfuse/fused/fuse_linear.hpp>
#include <kfuse/fused/stage/gate.hpp>
#include <kfuse/fused/stage/norm.hpp>
#include <kfuse/fused/stage/rope.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "planted_faults.hpp"
#include "simulated_instructions.hpp"
#include "simulated_lanes.hpp"
#include "support.hpp"

namespace {

// A space whose copies nobody waits for.
struct ForgottenCopy : kfuse::test::SimulatedCopy {
  template <int groups>
  KOKKOS_INLINE_FUNCTION static void wait_for_all_but() {}
};
struct Forgetful : kfuse::test::SimulatedSpace<32> {};
struct ForgetfulBackend : kfuse::test::SimulatedBackend<32> {
  using AsyncCopy = ForgottenCopy;
};
// A space with so little team memory that long rows do not fit.
struct CrampedCopy : kfuse::test::SimulatedCopy {
  static constexpr int bytes_ahead = 0, team_bytes = 44 * 1024;
};
struct Cramped : kfuse::test::SimulatedSpace<32> {};
struct CrampedBackend : kfuse::test::SimulatedBackend<32> {
  using AsyncCopy = CrampedCopy;
};

}  // namespace

template <>
struct kfuse::impl::BackendOf<Forgetful> {
  using type = ForgetfulBackend;
};
template <>
struct kfuse::impl::BackendOf<Cramped> {
  using type = CrampedBackend;
};

namespace {

using kfuse::bf16, kfuse::fp16, kfuse::load, kfuse::make_tensor, kfuse::rmsnorm, kfuse::store, kfuse::WeightsAre;
using namespace kfuse::test;

// Plain arithmetic on lane groups of this width.
template <int width>
struct Plain {
  using Space = SimulatedSpace<width>;
};
template <class On>
struct UnitOf {
  using type = On;
};
template <int width>
struct UnitOf<Plain<width>> {
  using type = void;
};

// The operands of y = rmsnorm(x) w^T + r, each `shift` elements behind a boundary of 16 bytes, in rows of whole chunks.
template <class Element>
class Operands {
 public:
  int const rows, in, out;

  Operands(int r, int i, int o, int shift, int first_row = 0)
      : rows(r), in(i), out(o), shift_(shift), first_row_(first_row) {
    x_ = matrix(rows, in, 1, first_row), w_ = matrix(out, in, 2), scale_ = matrix(1, in, 3);
    r_ = matrix(rows, out, 4, first_row);
  }

  template <class On, class Space, class Extra = kfuse::Scale>
  std::vector<double> product(Space const& space, Extra const& extra = {1},
                              WeightsAre weights = WeightsAre::written_before) {
    std::vector<Element> y(std::size_t(rows) * stride(out) + 16, encode<Element>(NAN));
    auto const result = tensor(y, rows, out);
    auto const x = const_tensor(x_, rows, in), w = const_tensor(w_, out, in), r = const_tensor(r_, rows, out);
    auto const scale = make_tensor<Element const>(scale_.data() + shift_, in);
    auto const before = load(x) | extra | rmsnorm(scale);
    auto const after = kfuse::add(r) | extra | store(result);
    if constexpr (std::is_void_v<typename UnitOf<On>::type>) {
      kfuse::Blas<Space> blas(space);
      kfuse::Workspace<Space> workspace(256);
      kfuse::fuse_linear(space, blas, workspace, "test::few_rows", before, w, after, {.weights = weights});
    } else {
      kfuse::impl::launch_few_rows<typename UnitOf<On>::type>(space, "test::few_rows", before, w, after, rows, weights);
    }
    return decoded(result);
  }
  // Is it part of the weight, or of the vector of the norm?
  bool is_weight(void const* p) const {
    auto const within = [p](auto const& m) { return p >= m.data() && p < m.data() + m.size(); };
    return within(w_) || within(scale_);
  }
  // The error of y relative to what rounding errors grow with.
  double error_of(std::vector<double> const& y) const {
    double largest = 0;
    for (int row = 0; row < rows; ++row) {
      double squares = 0;
      for (int k = 0; k < in; ++k) squares += value(1, first_row_ + row, k) * value(1, first_row_ + row, k);
      for (int o = 0; o < out; ++o) {
        double sum = value(4, first_row_ + row, o), size = std::abs(sum);
        for (int k = 0; k < in; ++k) {
          double const term =
              value(1, first_row_ + row, k) / std::sqrt(squares / in + 1e-6) * value(3, 0, k) * value(2, o, k);
          sum += term;
          size += std::abs(term);
        }
        double const error = std::abs(y[std::size_t(row) * out + o] - sum) / size;
        if (!(error <= largest)) largest = error;
      }
    }
    return largest;
  }

 private:
  static int stride(int columns) { return (columns + 7) / 8 * 8; }
  // Of matrix `number`: it depends on nothing but its place.
  static double value(int number, int row, int column) {
    double const v = std::sin(number * 7.3 + row * 1.7 + column * 0.37 + row * column * 0.011);
    return decode(encode<Element>(v));
  }
  std::vector<Element> matrix(int n, int columns, int number, int first = 0) const {
    std::vector<Element> m(std::size_t(n) * stride(columns) + 16, encode<Element>(NAN));
    for (int r = 0; r < n; ++r)
      for (int c = 0; c < columns; ++c)
        m[shift_ + std::size_t(r) * stride(columns) + c] = encode<Element>(value(number, first + r, c));
    return m;
  }
  kfuse::Tensor<Element, 2> tensor(std::vector<Element>& m, int n, int columns) const {
    return kfuse::columns(make_tensor(m.data() + shift_, n, stride(columns)), 0, columns);
  }
  kfuse::Tensor<Element const, 2> const_tensor(std::vector<Element>& m, int n, int columns) const {
    return tensor(m, n, columns);
  }
  static std::vector<double> decoded(kfuse::Tensor<Element, 2> const& t) {
    std::vector<double> values;
    for (int r = 0; r < t.extent(0); ++r)
      for (int c = 0; c < t.extent(1); ++c) values.push_back(decode(t(r, c)));
    return values;
  }

  int shift_, first_row_;
  std::vector<Element> x_, w_, scale_, r_;
};

template <class On, class Element>
std::vector<double> product(int rows, int in, int out, int shift, Copies copies, int first_row = 0) {
  return in_both_orders<typename On::Space>(
      [&](auto const& space) { return Operands<Element>(rows, in, out, shift, first_row).template product<On>(space); },
      {.copies = copies});
}

template <class On, class Element>
void check_products() {
  for (int const in : {16, 75, 640})
    for (int const out : {5, 70}) {
      CAPTURE(in);
      CAPTURE(out);
      auto const all = product<On, Element>(16, in, out, 0, Copies::when_awaited);
      CHECK(Operands<Element>(16, in, out, 0).error_of(all) <= 2.2 * tolerance<Element>());
      CHECK(product<On, Element>(16, in, out, 1, Copies::at_once) == all);  // wherever they lie
      std::vector<double> const last(all.end() - out, all.end());           // and however many rows there are
      CHECK(product<On, Element>(1, in, out, 0, Copies::when_awaited, 15) == last);
    }
}
TEST_CASE_TEMPLATE("few rows by matrix instructions are right on lanes", On, Mma, Mfma, Wmma) {
  check_products<On, bf16>();
  check_products<On, fp16>();
}
TEST_CASE_TEMPLATE("few rows in plain arithmetic are right on lanes", On, Plain<32>, Plain<64>) {
  check_products<On, double>();
  check_products<On, float>();
  check_products<On, bf16>();
}

// 16 rows of 1600 columns take more memory than there is, of either type.
TEST_CASE_TEMPLATE("rows that are held in parts give the same bits", On, Mma, Plain<32>) {
  using Element = std::conditional_t<std::is_same_v<On, Mma>, bf16, float>;
  for (int const shift : {0, 1}) {
    Operands<Element> operands(16, 1600, 70, shift);
    auto const right = operands.template product<On>(SimulatedSpace<32>{});
    for (Copies const copies : {Copies::at_once, Copies::when_awaited}) {
      Cramped space;
      space.copies = copies;
      CHECK(in_both_orders([&](Cramped const& on) { return operands.template product<On>(on); }, space) == right);
    }
  }
}
TEST_CASE("the barriers around a part of the rows are missed") {
  for (int const number : {3, 4}) {  // after those of the norm, and of the first part
    CAPTURE(number);
    Fault const fault{Fault::missing_barrier, number};
    auto const work = [](Cramped const& on) { return Operands<bf16>(16, 1600, 70, 0).template product<Mma>(on); };
    Cramped space;
    space.copies = Copies::when_awaited;
    CHECK(seen<Cramped>(work, fault, space) != "");
  }
}

// A norm's weight of another element type than the product's.
template <class On, class Element, class Weight>
void check_vector() {
  int const rows = 2, in = 200, out = 9;
  std::vector<Element> x, w;
  std::vector<Weight> scale;
  for (int i = 0; i < rows * in; ++i) x.push_back(encode<Element>(std::sin(i * 0.7)));
  for (int i = 0; i < out * in; ++i) w.push_back(encode<Element>(std::cos(i * 0.3)));
  for (int i = 0; i < in; ++i) scale.push_back(encode<Weight>(1 + i % 16 / 16.0));
  std::vector<Element> y(std::size_t(rows) * out);
  auto const matrix = make_tensor<Element const>(x.data(), rows, in);
  typename On::Space const space;
  kfuse::impl::launch_few_rows<typename UnitOf<On>::type>(
      space, "test::few_rows",
      load(matrix) | kfuse::weight(make_tensor<Weight const>(scale.data(), in)) |
          kfuse::weight(make_tensor<Weight const>(scale.data(), in)),
      make_tensor<Element const>(w.data(), out, in), kfuse::impl::as_chain(store(make_tensor(y.data(), rows, out))),
      rows, WeightsAre::constant);
  for (int row = 0; row < rows; ++row)
    for (int o = 0; o < out; ++o) {
      double sum = 0, size = 0;
      for (int k = 0; k < in; ++k) {
        double const term =
            decode(x[row * in + k]) * decode(scale[k]) * decode(scale[k]) * decode(w[std::size_t(o) * in + k]);
        sum += term;
        size += std::abs(term);
      }
      CHECK(std::abs(decode(y[std::size_t(row) * out + o]) - sum) <= 2.2 * tolerance<Element>() * size);
    }
}
TEST_CASE_TEMPLATE("vectors of any element type come to team memory", On, Plain<32>, Plain<64>) {
  check_vector<On, bf16, bf16>();
  check_vector<On, bf16, float>();
  check_vector<On, fp16, double>();
  check_vector<On, float, bf16>();
  check_vector<On, float, double>();
  check_vector<On, double, float>();
}
TEST_CASE("vectors of any element type come to team memory for matrix instructions") {
  check_vector<Mma, bf16, float>();
  check_vector<Wmma, bf16, bf16>();
}
// What lies behind what is known of the rows, of a chain that finds out nothing.
TEST_CASE_TEMPLATE("rows that nothing is done with go through a product", On, Mma, Plain<32>) {
  for (int const rows : {1, 2, 3}) {
    int const in = 64, out = 5;
    std::vector<float> y(std::size_t(rows) * out, NAN);
    std::vector<bf16> const x(std::size_t(rows) * in, encode<bf16>(2)), w(std::size_t(out) * in, encode<bf16>(3));
    typename On::Space const space;
    kfuse::impl::launch_few_rows<typename UnitOf<On>::type>(
        space, "test::few_rows", kfuse::impl::as_chain(load(make_tensor<bf16 const>(x.data(), rows, in))),
        make_tensor<bf16 const>(w.data(), out, in), kfuse::impl::as_chain(store(make_tensor(y.data(), rows, out))),
        rows, WeightsAre::written_before);
    CHECK(y == std::vector<float>(y.size(), 6 * in));
  }
}

// Pairs of columns, wherever they are: the rows of a rotation, and a gate beside its up.
template <class On>
void check_pairs() {
  using Space = typename On::Space;
  int const rows = 3, in = 72, head_dim = 12, heads = 5, out = heads * head_dim;
  std::vector<bf16> x, w;
  std::vector<float> table;
  for (int i = 0; i < rows * in; ++i) x.push_back(encode<bf16>(std::sin(i * 0.7)));
  for (int i = 0; i < out * in; ++i) w.push_back(encode<bf16>(std::cos(i * 0.3 + i / in)));
  for (int i = 0; i < 4 * head_dim; ++i) table.push_back(float(std::sin(i * 1.3)));
  std::vector<double> product;  // [rows, out]
  for (int row = 0; row < rows; ++row)
    for (int o = 0; o < out; ++o) {
      product.push_back(0);
      for (int k = 0; k < in; ++k) product.back() += decode(x[row * in + k]) * decode(w[o * in + k]);
    }
  std::vector<int> const positions{3, 0, 1};
  auto const run = [&](auto const& after, int columns) {
    return in_both_orders<Space>([&](Space const& space) {
      std::vector<float> y(std::size_t(rows) * columns, NAN);
      kfuse::impl::launch_few_rows<typename UnitOf<On>::type>(
          space, "test::few_rows", kfuse::impl::as_chain(load(make_tensor<bf16 const>(x.data(), rows, in))),
          make_tensor<bf16 const>(w.data(), out, in), after | store(make_tensor(y.data(), rows, columns)), rows,
          WeightsAre::constant);
      return std::vector<double>(y.begin(), y.end());
    });
  };
  for (auto const pairs : {kfuse::RopePairs::half, kfuse::RopePairs::interleaved})
    for (int const rotary : {12, 8}) {
      auto const turned = run(
          kfuse::rope(make_tensor<float const>(table.data(), 4, rotary), make_tensor<int const>(positions.data(), rows),
                      {.head_dim = head_dim, .rotary_dim = rotary, .pairs = pairs}),
          out);
      std::vector<double> expected = product;
      for (int i = 0; i < rows * out; ++i) {
        int const c = i % head_dim, half = rotary / 2, position = positions[i / out];
        if (c >= rotary) continue;
        bool const halves = pairs == kfuse::RopePairs::half, first = halves ? c < half : c % 2 == 0;
        int const other = i + (halves ? half : 1) * (first ? 1 : -1), pair = halves ? c % half : c / 2;
        double const cosine = table[position * rotary + pair], sine = table[position * rotary + half + pair];
        expected[i] = product[i] * cosine + (first ? -1 : 1) * product[other] * sine;
      }
      for (int i = 0; i < rows * out; ++i) CHECK(std::abs(turned[i] - expected[i]) <= 1e-4);
    }
  for (auto const layout : {kfuse::GateLayout::halves, kfuse::GateLayout::interleaved}) {
    int const n = out / 2;
    auto const gated = run(kfuse::gate<kfuse::Activation::relu>({.layout = layout}), n);
    for (int i = 0; i < rows * n; ++i) {
      bool const halves = layout == kfuse::GateLayout::halves;
      int const g = i / n * out + (halves ? i % n : 2 * (i % n)), u = g + (halves ? n : 1);
      CHECK(std::abs(gated[i] - std::max(0.0, product[g]) * product[u]) <= 1e-3);
    }
  }
}
TEST_CASE_TEMPLATE("pairs of a product's columns meet on lanes", On, Mma, Mfma, Wmma, Plain<32>, Plain<64>) {
  check_pairs<On>();
}

// Fails where a lane reads or writes before it has waited for the kernel before; the values stay as they are.
struct AfterWait {
  using stage = kfuse::ElementStage;
  static constexpr bool row_input = true;
  using element = float;
  struct Nothing {};
  KOKKOS_FUNCTION static void check() {
    KOKKOS_IF_ON_HOST((if (!SharedByTeam::running->has_waited()) SharedByTeam::running->fail("it did not wait");))
  }
  template <class X>
  KOKKOS_FUNCTION Nothing fetch(kfuse::Place) const {
    check();
    return {};
  }
  template <class X>
  KOKKOS_FUNCTION void take(X&, Nothing, kfuse::Place) const {
    check();
  }
};
template <class On>
void check_wait() {
  using Space = typename On::Space;
  Operands<bf16> operands(2, 200, 40, 0);
  for (auto const weights : {WeightsAre::written_before, WeightsAre::constant}) {
    Space space;
    bool was_early = false;
    space.may_be_early = [&](void const* p) {
      was_early = true;
      return weights == WeightsAre::constant && operands.is_weight(p);
    };
    CHECK(operands.template product<On>(space, AfterWait(), weights) == operands.template product<On>(Space{}));
    CHECK(was_early == (weights == WeightsAre::constant));
  }
}
TEST_CASE_TEMPLATE("only what is constant is read before the kernel before has ended", On, Mma, Plain<32>) {
  check_wait<On>();
}

// Pieces for each lane group to have several, and outputs of a team that go in several turns.
template <class On, class Space>
std::vector<double> long_product(Space const& space) {
  return Operands<bf16>(2, 1600, 230, 0).template product<On>(space);
}

TEST_CASE_TEMPLATE("every barrier of a product of few rows is missed", On, Mma, Mfma, Wmma, Plain<32>) {
  using Space = typename On::Space;
  auto const check = [](Fault const& fault, std::vector<Copies> const& all = {Copies::at_once, Copies::when_awaited}) {
    CAPTURE(int(fault.kind));
    CAPTURE(fault.number);
    for (Copies const copies : all) CHECK(seen<Space>(long_product<On, Space>, fault, {.copies = copies}) != "");
  };
  for (int const number : {0, 1, 3}) check({Fault::missing_barrier, number});
  if constexpr (!std::is_void_v<typename UnitOf<On>::type>)  // in plain arithmetic lanes read the rows that they write
    check({Fault::missing_barrier, 2});
  // Of the barriers of a lane group, those between writing and reading: first the table of a tile's outputs, and then
  // stages that are brought again, where lanes read what others have awaited. Those after reading are missed by no
  // model: a matrix instruction, which all lanes come to, lies in between, or the table holds the same. The first table
  // has two, each piece two, and the three stages come again from the fourth piece on, the ninth barrier.
  check({Fault::missing_group_barrier, 0});
  if constexpr (std::is_same_v<On, Mfma> || std::is_same_v<On, Wmma>)
    for (int const number : {8, 10}) check({Fault::missing_group_barrier, number}, {Copies::when_awaited});
}

TEST_CASE("copies of weights that nobody waits for are seen") {
  auto const right = long_product<Plain<32>>(SimulatedSpace<32>{});
  Forgetful space;
  CHECK(long_product<Plain<32>>(space) == right);
  space.copies = Copies::when_awaited;
  CHECK(long_product<Plain<32>>(space) != right);
}

}  // namespace
