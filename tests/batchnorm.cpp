// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/batchnorm.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "random_cases.hpp"
#include "simulated_lanes.hpp"
#include "support.hpp"

namespace {

using kfuse::Activation;
using kfuse::batchnorm;
using kfuse::bf16;
using kfuse::fp16;
using kfuse::Tensor;
using namespace kfuse::test;

// What is known of each channel.
struct Channels {
  std::vector<double> mean, variance, weight, bias;
  double epsilon = 1e-5;

  template <class Element>
  static Channels random(int channels, std::uint64_t seed) {
    return {random_values<Element>(channels, seed), random_values<Element>(channels, seed + 1, 0.25, 4),
            random_values<Element>(channels, seed + 2), random_values<Element>(channels, seed + 3)};
  }
  // The definition, of one value.
  double normed(double x, std::size_t c, Activation activation) const {
    double const factor =
        weight[c] / std::sqrt(variance[c] + epsilon);  // x may be so large that it is infinite without
    double const y = (x - mean[c]) * factor + bias[c];
    return activation == Activation::relu && y < 0 ? 0 : y;
  }
};

// x of [images, channels, positions]; channels last have one position, and as many images as rows.
std::vector<double> reference(std::vector<double> const& x, Channels const& channels, std::size_t positions,
                              Activation activation) {
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = channels.normed(x[i], i / positions % channels.mean.size(), activation);
  return y;
}
// The numbers that cancel in each row: x and the mean, and the bias. Weights are at most 4 deviations.
std::vector<double> scales(std::vector<double> const& x, std::size_t columns) {
  std::vector<double> result;
  for (std::size_t begin = 0; begin < x.size(); begin += columns) {
    double largest = 2;
    for (std::size_t c = begin; c < begin + columns; ++c)
      if (std::isfinite(x[c])) largest = std::max(largest, std::abs(x[c]));
    result.push_back(4 * largest + 2);
  }
  return result;
}

// The parameters on the device.
template <class Element>
struct Given {
  Kokkos::View<Element*, Kokkos::LayoutRight, Space> mean, variance, weight, bias;

  explicit Given(Channels const& c)
      : mean(view(c.mean)), variance(view(c.variance)), weight(view(c.weight)), bias(view(c.bias)) {}
  template <class X, class Y>
  void run(Space const& space, X const& x, Y const& y, kfuse::BatchNormOptions const& options = {}) const {
    batchnorm(space, x, mean, variance, weight, bias, y, options);
  }

 private:
  static auto view(std::vector<double> const& values) { return view_of<Element>(values, values.size()); }
};

// A matrix of [images, channels * positions] as [images, channels, positions].
template <class View>
auto as_images(View const& matrix, int channels, int positions) {
  return Tensor<typename View::value_type, 3>{
      matrix.data(), {int(matrix.extent(0)), channels, positions}, {std::ptrdiff_t(matrix.stride(0)), positions, 1}};
}

double draw_epsilon(RandomCase const& c) {
  constexpr double epsilons[] = {1e-5, 1e-3, 1, 1e-12, 0};
  return epsilons[c.random().below(5)];
}

TEST_CASE("batchnorm, channels last, is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("batchnorm", {}, [&]<class Element>(RandomCase& c) {
    using Parameter = kfuse::Real<Element>;
    auto const activation = c.number % 2 == 0 ? Activation::relu : Activation::none;
    auto const x = c.values<Element>(0);
    auto channels = Channels::random<Parameter>(c.columns, c.seed);
    channels.epsilon = draw_epsilon(c);
    kfuse::BatchNormOptions const options{.epsilon = channels.epsilon, .activation = activation};
    Given<Parameter> const given(channels);
    auto const in = c.matrix<Element>(0, x), y = c.matrix<Element>(1);
    given.run(space, in.const_view(), y.view(), options);
    c.compare("y", y, reference(x, channels, 1, activation), scales(x, c.columns));
    c.unchanged("x", in, x);
    c.same_bits("y", [&](int first, int count) {
      auto const part = view_of_nans<Element>(count, c.columns);
      given.run(space, rows_of(in, first, count), part, options);
      return elements(part);
    });
  });
}

TEST_CASE("batchnorm, NCHW, is right on 2,000 random shapes") {
  Space const space = another_instance();
  for_random_cases("batchnorm of NCHW", {}, [&]<class Element>(RandomCase& c) {
    // A row of the case is an image.
    int const count = 1 + int(c.seed % 9), positions = std::max(1, c.columns / count), columns = count * positions;
    auto const activation = c.number % 2 == 0 ? Activation::relu : Activation::none;
    auto const x = c.values<Element>(0, std::size_t(c.rows) * columns);
    auto channels = Channels::random<Element>(count, c.seed);
    channels.epsilon = draw_epsilon(c);
    kfuse::BatchNormOptions const options{.epsilon = channels.epsilon, .activation = activation};
    Given<Element> const given(channels);
    GuardedMatrix<Element> const in(c.rows, columns, x, c.place(0)), y(c.rows, columns, c.place(1));
    given.run(space, as_images(in.const_view(), count, positions), as_images(y.view(), count, positions), options);
    c.compare("y", y, reference(x, channels, positions, activation), scales(x, columns));
    c.unchanged("x", in, x);
    c.same_bits("y", [&](int first, int images) {
      auto const part = view_of_nans<Element>(images, columns);
      given.run(space, as_images(rows_of(in, first, images), count, positions), as_images(part, count, positions),
                options);
      return elements(part);
    });
  });
}

// The kernel that keeps its parameters, against the chain, on lanes that exist: where lanes are few, rows are many.
TEST_CASE_TEMPLATE("batchnorm by columns has the bits of the chain", Element, float, bf16, double) {
  using Parameter = kfuse::Real<Element>;
  using Lanes = SimulatedSpace<32>;
  constexpr int width = 16 / sizeof(Element);
  for (int const packs : {1, 3, 100, 256, 257, 700})
    for (int const rows : {1, 7, 300}) {
      int const columns = packs * width;
      if (rows * columns > 300000) continue;
      CAPTURE(columns);
      CAPTURE(rows);
      auto const x = random_values<Element>(std::size_t(rows) * columns, 1);
      auto const channels = Channels::random<Parameter>(columns, 2);
      auto const run = [&](Lanes const& lanes) {
        std::vector<Element> in(x.size()), out(x.size(), kfuse::from_real<Element>(NAN));
        std::transform(x.begin(), x.end(), in.begin(), [](double v) { return encode<Element>(v); });
        std::vector<std::vector<Parameter>> held;
        for (auto const* values : {&channels.mean, &channels.variance, &channels.weight, &channels.bias})
          held.emplace_back(values->begin(), values->end());
        auto const t = [&](int i) { return kfuse::make_tensor<Parameter const>(held[i].data(), columns); };
        auto const y = kfuse::make_tensor(out.data(), rows, columns);
        kfuse::Ledger const ledger;
        batchnorm(lanes, kfuse::make_tensor<Element const>(in.data(), rows, columns), t(0), t(1), t(2), t(3), y,
                  {.activation = Activation::relu});
        CHECK(ledger.launches() == 1);
        std::vector<double> values(out.size());
        std::transform(out.begin(), out.end(), values.begin(), [](Element v) { return decode(v); });
        return values;
      };
      auto const chain = run({.lanes = 1 << 30}), columns_first = run({.lanes = 1});
      CHECK(columns_first == chain);
      CHECK(run({.order = Order::backward, .lanes = 1}) == chain);
      CHECK(disagreement<Element>(chain, reference(x, channels, 1, Activation::relu), columns,
                                  scales(x, std::size_t(columns)))
                .empty());
    }
}

TEST_CASE("batchnorm may be in place, and takes images with gaps") {
  int const images = 3, count = 5, positions = 49;
  auto const channels = Channels::random<float>(count, 1);
  Given<float> const given(channels);
  for (int const gap : {0, 7}) {
    auto const x = random_values<bf16>(images * count * positions, 2);
    GuardedMatrix<bf16> const m(images, count * positions, x, Place2D{0, gap});
    auto const y = view_of_nans<bf16>(images, count, positions);
    auto const in = as_images(m.view(), count, positions);
    given.run(Space(), in, y);
    given.run(Space(), in, in);
    CHECK(m.values() == download(y));
    CHECK(m.guards_intact());
  }
  auto const rows = view_of<float>(random_values<float>(7 * count, 3), 7, count), y = view_of_nans<float>(7, count);
  given.run(Space(), rows, y);
  given.run(Space(), rows, rows);
  CHECK(same_bits(rows, y));
}

// CASES P01, of known statistics: neither a large mean nor a bias costs the digits of what is left.
TEST_CASE("batchnorm subtracts the mean first") {
  Channels const channels{{40000}, {1}, {1}, {0}};
  auto const y = view_of_nans<float>(4, 1);
  Given<float>(channels).run(Space(), view_of<float>({40000, 40001, 40002, 39999}, 4, 1), y);
  CHECK(deviation(download(y), {0, 0.999995, 1.99999, -0.999995}) <= 1e-6);
}

TEST_CASE("batchnorm keeps NaN, with and without relu") {
  Channels const channels{{0}, {1}, {1}, {0}};
  for (Activation const activation : {Activation::none, Activation::relu}) {
    auto const y = view_of_nans<float>(3, 1);
    Given<float>(channels).run(Space(), view_of<float>({NAN, INFINITY, -INFINITY}, 3, 1), y,
                               {.activation = activation});
    auto const now = download(y);
    CHECK(std::isnan(now[0]));
    CHECK(now[1] == INFINITY);
    CHECK(now[2] == (activation == Activation::relu ? 0 : -INFINITY));
  }
}

TEST_CASE("a channel without variance, and with epsilon 0, gives NaN at its mean and infinities beside it") {
  Channels const channels{{5, 5}, {0, 0}, {1, -2}, {7, 7}};
  std::vector<double> const x{5, 5, 6, 6, 4, 4}, y{NAN, NAN, INFINITY, -INFINITY, -INFINITY, INFINITY};
  auto const of = [&]<class Element>(Element, double epsilon) {
    auto const rows = view_of_nans<Element>(3, 2);
    Given<Element>(channels).run(Space(), view_of<Element>(x, 3, 2), rows, {.epsilon = epsilon});
    auto const images = view_of_nans<Element>(3, 2, 1);
    Given<Element>(channels).run(Space(), view_of<Element>(x, 3, 2, 1), images, {.epsilon = epsilon});
    CHECK(same_bits(rows, images));
    return download(rows);
  };
  CHECK(deviation(of(float(), 0), y, 0) == 0);
  CHECK(deviation(of(float(), 1e-50), y, 0) == 0);
  CHECK(deviation(of(double(), 0), y, 0) == 0);
  CHECK(std::isfinite(of(double(), 1e-50)[2]));
  CHECK(of(float(), 1e-5)[0] == 7);
}

// CASES P09
TEST_CASE("batchnorm of nothing writes nothing") {
  Given<float> const three({{0, 0, 0}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}}), none({{}, {}, {}, {}});
  three.run(Space(), view_of_nans<float>(0, 3), view_of_nans<float>(0, 3));
  three.run(Space(), view_of_nans<float>(0, 3, 4), view_of_nans<float>(0, 3, 4));
  three.run(Space(), view_of_nans<float>(2, 3, 0), view_of_nans<float>(2, 3, 0));
  none.run(Space(), view_of_nans<float>(2, 0), view_of_nans<float>(2, 0));
  none.run(Space(), view_of_nans<float>(2, 0, 4), view_of_nans<float>(2, 0, 4));
}

TEST_CASE("batchnorm refuses what does not fit, and writes nothing") {
  auto const channels = Channels::random<float>(4, 1);
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4), y = view_of_nans<float>(3, 4);
  auto const other = view_of_nans<float>(4, 3);
  auto const few = view_of<float>({1, 1, 1}, 3);
  Given<float> const given(channels);
  auto const error = [&](auto const& mean, auto const& variance, auto const& out,
                         kfuse::BatchNormOptions const& options = {}) {
    return error_of([&] { batchnorm(Space(), x, mean, variance, given.weight, given.bias, out, options); });
  };
  CHECK(contains(error(few, given.variance, y), "kfuse::batchnorm: running_mean: has 3 entries for 4 channels"));
  CHECK(contains(error(given.mean, few, y), "kfuse::batchnorm: running_var: has 3 entries for 4 channels"));
  CHECK(contains(error(given.mean, given.variance, other), "kfuse::batchnorm: y: shape [4, 3] is not that of x"));
  CHECK(contains(error(given.mean, given.variance, y, {.epsilon = -1}), "epsilon"));
  CHECK(contains(error(given.mean, given.variance, y, {.epsilon = 1e300}), "epsilon"));  // infinite in float
  CHECK(contains(error(given.mean, given.variance, y, {.activation = Activation::gelu}), "must be none or relu"));
  for (double const v : download(y)) CHECK(std::isnan(v));
}

TEST_CASE("batchnorm moves its arguments once") {
  Tensor<bf16, 2> const last{nullptr, {100, 64}, {64, 1}};
  Tensor<bf16, 3> const nchw{nullptr, {2, 64, 50}, {3200, 50, 1}};
  Tensor<float, 1> const p{nullptr, {64}, {1}};
  CHECK(kfuse::batchnorm_traffic(Space(), last, p, p, p, p, last).bytes() == 2 * 6400 * 2 + 4 * 64 * 4);
  CHECK(kfuse::batchnorm_traffic(Space(), nchw, p, p, p, p, nchw).bytes() == 2 * 6400 * 2 + 4 * 64 * 4);
}

}  // namespace
