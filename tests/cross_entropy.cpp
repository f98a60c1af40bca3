// SPDX-License-Identifier: Apache-2.0
#include <kfuse/fused/cross_entropy.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "random_cases.hpp"
#include "support.hpp"

namespace {

using kfuse::bf16;
using kfuse::cross_entropy;
using kfuse::CrossEntropyOptions;
using kfuse::DataFault;
using kfuse::fp16;
using kfuse::Reduction;
using namespace kfuse::test;

constexpr double infinity = std::numeric_limits<double>::infinity();

// What a loss is made of, in double; the names of the options.
struct Terms {
  std::vector<double> weight = {};
  std::int64_t ignore_index = -100;
  double label_smoothing = 0, z_loss = 0, softcap = 0;
  double w(int c) const { return weight.empty() ? 1 : weight[c]; }
};
struct Row {
  double loss = 0, label_weight = 0;
  std::vector<double> gradient;
};
// In more than double: differences of doubles may be beyond them, and their mean is not.
using Wide = long double;
Wide times(double weight, Wide x) {
  return weight == 0 && !std::isnan(x) ? 0 : weight * x;
}

// PyTorch's definition, with the z-loss added to what the label's weight multiplies.
Row reference(std::vector<double> x, std::int64_t label, Terms const& t) {
  int const classes = int(x.size());
  Row row{.gradient = std::vector<double>(classes, 0)};
  if (label == t.ignore_index) return row;
  if (label < 0 || label >= classes) {
    row.loss = NAN;
    return row;
  }
  if (t.softcap > 0)
    for (double& v : x) v = t.softcap * std::tanh(v / t.softcap);
  double const high = *std::max_element(x.begin(), x.end(), [](double a, double b) { return !(b <= a); });
  double sum = 0, weights = 0;
  for (double const v : x) sum += std::exp(v - high);
  double const lse = high + std::log(sum), w = t.w(int(label));
  double const certain = 1 - t.label_smoothing, share = t.label_smoothing / classes;
  auto const cost = [&](int c) { return Wide(high) - x[c] + std::log(sum); };
  Wide loss = times(w, times(certain, cost(int(label))) + times(t.z_loss, Wide(lse) * lse));
  for (int c = 0; c < classes; ++c) {
    loss += times(share * t.w(c), cost(c));
    weights += t.w(c);
  }
  row.loss = double(loss);
  row.label_weight = w;
  for (int c = 0; c < classes; ++c) {
    double const p = std::exp(x[c] - high) / sum;
    double const slope = w * (certain + double(times(2 * t.z_loss, lse))) + share * weights;
    double const d = p * slope - (c == label ? w * certain : 0) - share * t.w(c);
    row.gradient[c] = t.softcap > 0 ? d * (1 - std::pow(x[c] / t.softcap, 2)) : d;
  }
  return row;
}

struct Expected {
  std::vector<double> losses, gradient;
  double sum = 0, total_weight = 0, mean = 0;
};
Expected reference(std::vector<double> const& x, std::vector<std::int64_t> const& labels, Terms const& t) {
  Expected all;
  std::size_t const classes = labels.empty() ? 0 : x.size() / labels.size();
  for (std::size_t r = 0; r < labels.size(); ++r) {
    auto const first = x.begin() + std::ptrdiff_t(r * classes);
    Row const row = reference({first, first + std::ptrdiff_t(classes)}, labels[r], t);
    all.losses.push_back(row.loss);
    all.gradient.insert(all.gradient.end(), row.gradient.begin(), row.gradient.end());
    all.sum += row.loss;
    all.total_weight += row.label_weight;
  }
  all.mean = all.sum == 0 ? 0 : all.sum / all.total_weight;
  return all;
}

// A call with everything in memory of its own.
template <class Element, class Label = std::int64_t>
struct Call {
  using Real = kfuse::Real<Element>;
  int rows, classes;
  Kokkos::View<Element**, Kokkos::LayoutRight, Space> logits;
  Kokkos::View<Label*, Space> labels;
  Kokkos::View<Real*, Space> weight, total_weight;
  Kokkos::View<int, Space> status{"status"};
  kfuse::Workspace<Space> workspace{1 << 22};

  Call(std::vector<double> const& x, std::vector<std::int64_t> const& label, Terms const& t)
      : rows(int(label.size())),
        classes(int(x.size() / label.size())),
        logits(view_of<Element>(x, rows, classes)),
        labels("labels", rows),
        weight(view_of<Real>(t.weight, t.weight.size())),
        total_weight(view_of_nans<Real>(1)),
        terms_(t) {
    set_elements(labels, std::vector<Label>(label.begin(), label.end()));
    workspace.poison(Space());
  }
  CrossEntropyOptions<Real> options(Reduction reduction) const {
    CrossEntropyOptions<Real> o{.ignore_index = terms_.ignore_index,
                                .reduction = reduction,
                                .label_smoothing = terms_.label_smoothing,
                                .z_loss = terms_.z_loss,
                                .softcap = terms_.softcap,
                                .status = status};
    if (!terms_.weight.empty()) o.weight = kfuse::make_tensor<Real const>(weight.data(), classes);
    if (reduction == Reduction::mean) o.total_weight = kfuse::make_tensor(total_weight.data(), 1);
    return o;
  }
  std::vector<double> loss(Reduction reduction) {
    auto const result = view_of_nans<Real>(reduction == Reduction::none ? rows : 1);
    cross_entropy(Space(), logits, labels, result, options(reduction), workspace);
    return download(result);
  }
  std::vector<double> gradient(Reduction reduction) {
    auto const result = view_of_nans<Real>(reduction == Reduction::none ? rows : 1);
    auto const to = view_of_nans<Element>(rows, classes);
    cross_entropy(Space(), logits, labels, result, to, options(reduction), workspace);
    CHECK(same_values(result, loss(reduction)));
    return download(to);
  }
  DataFault found() const { return DataFault(elements(status)[0]); }

 private:
  static bool same_values(Kokkos::View<Real*, Space> const& a, std::vector<double> const& b) {
    return deviation(download(a), b, 0) == 0;
  }
  Terms terms_;
};

std::vector<std::int64_t> random_labels(int rows, int classes, std::uint64_t seed, std::int64_t ignore_index) {
  std::vector<std::int64_t> labels;
  Random random(seed);
  for (int r = 0; r < rows; ++r) labels.push_back(random.below(5) == 0 ? ignore_index : random.below(classes));
  return labels;
}

// Every combination of the options (CASES P50).
TEST_CASE_TEMPLATE("cross_entropy agrees with its definition in double", Element, double, float, bf16, fp16) {
  for (int const classes : {1, 2, 33, 1000, 4096, 70001})
    for (double const label_smoothing : {0.0, 0.1, 1.0})
      for (double const z_loss : {0.0, 1e-2})
        for (double const softcap : {0.0, 5.0})
          for (bool const weighted : {false, true}) {
            CAPTURE(classes);
            CAPTURE(label_smoothing);
            CAPTURE(z_loss);
            CAPTURE(softcap);
            CAPTURE(weighted);
            int const rows = classes > 1000 ? 2 : 9;
            Terms const t{weighted ? random_values<float>(classes, 3, 0.5, 2) : std::vector<double>(), -100,
                          label_smoothing, z_loss, softcap};
            auto const x = random_values<Element>(std::size_t(rows) * classes, classes, -4, 4);
            auto const labels = random_labels(rows, classes, classes, -100);
            auto const expected = reference(x, labels, t);
            Call<Element> call(x, labels, t);
            using Real = kfuse::Real<Element>;
            std::vector<double> const scales(rows, 10);  // what a loss is a difference of
            auto fault = disagreement<Real>(call.loss(Reduction::none), expected.losses, 1, scales);
            CHECK_MESSAGE(fault.empty(), fault);
            double const floor = 1e-2;
            CHECK(deviation(call.loss(Reduction::sum), {expected.sum}, floor) <= tolerance<Real>());
            CHECK(deviation(call.loss(Reduction::mean), {expected.mean}, floor) <= tolerance<Real>());
            CHECK(deviation(download(call.total_weight), {expected.total_weight}) <= tolerance<Real>());
            std::vector<double> const terms(rows, 4);  // and a gradient
            fault = disagreement<Element>(call.gradient(Reduction::none), expected.gradient, classes, terms);
            CHECK_MESSAGE(fault.empty(), fault);
            auto mean = expected.gradient;
            for (double& v : mean) v = v == 0 ? 0 : v / expected.total_weight;
            std::vector<double> const parts(rows, 4 / expected.total_weight);
            fault = disagreement<Element>(call.gradient(Reduction::mean), mean, classes, parts);
            CHECK_MESSAGE(fault.empty(), fault);
            CHECK(call.found() == DataFault::none);
            CHECK(download(call.logits) == x);  // CASES P11
          }
}

// The formula of the gradient has a witness that shares nothing with it.
TEST_CASE("the gradient of cross_entropy is what the loss changes by") {
  int const rows = 3, classes = 11;
  auto x = random_values(rows * classes, 5, -3, 3);
  std::vector<std::int64_t> const labels{4, 0, 10};
  auto const weight = random_values(classes, 3, 0.5, 2);
  for (Terms const& t : {Terms{}, Terms{weight, -100, 0.2, 0.05, 4}, Terms{weight, -100, 0, 0.05, 0},
                         Terms{{}, -100, 0.3, 0, 0}, Terms{{}, -100, 0, 0, 2}})
    for (Reduction const reduction : {Reduction::sum, Reduction::mean}) {
      auto const gradient = Call<double>(x, labels, t).gradient(reduction);
      for (std::size_t i = 0; i < x.size(); ++i) {
        double const step = 1e-5, at = x[i];
        auto const loss = [&](double v) {
          x[i] = v;
          double const result = Call<double>(x, labels, t).loss(reduction)[0];
          x[i] = at;
          return result;
        };
        CHECK(std::abs((loss(at + step) - loss(at - step)) / (2 * step) - gradient[i]) <= 1e-8);
      }
    }
}

// What is drawn in a random case.
Terms draw_terms(RandomCase const& c, Random& random, Reduction reduction) {
  constexpr double smoothing[] = {0, 0, 0, 0.1, 1}, z_loss[] = {0, 0, 1e-4, 1e-2}, softcap[] = {0, 0, 5, 30};
  Terms t{.ignore_index = c.number % 2 == 0 ? -100 : 0};
  t.label_smoothing = smoothing[random.below(5)];
  t.softcap = softcap[random.below(4)];
  if (c.kind != ValueKind::huge || t.softcap > 0) t.z_loss = z_loss[random.below(4)];  // else its square is infinite
  if (random.below(2) == 0) t.weight = random_values<float>(c.columns, c.seed, 0.5, 2);
  if (reduction != Reduction::mean && random.below(2) == 0)  // a mean divides by their sum
    for (double& w : t.weight) w = random.below(4) == 0 ? 0 : w;
  return t;
}

TEST_CASE("cross_entropy is right on 2,000 random shapes") {
  Space const space = another_instance();
  kfuse::Workspace<Space> workspace(std::size_t(1) << 25);
  for_random_cases("cross_entropy", {}, [&]<class Element>(RandomCase& c) {
    using Real = kfuse::Real<Element>;
    auto random = c.random();
    auto const reduction = Reduction(c.kind == ValueKind::huge ? 0 : random.below(3));  // huge losses have no sum
    auto const t = draw_terms(c, random, reduction);
    auto const x = c.values<Element>(0);
    auto const label = random_labels(c.rows, c.columns, c.seed, t.ignore_index);
    auto const expected = reference(x, label, t);
    auto const in = c.matrix<Element>(0, x), gradient = c.matrix<Element>(1);
    Kokkos::View<int*, Space> const labels("labels", c.rows);
    set_elements(labels, std::vector<int>(label.begin(), label.end()));
    auto const weight = view_of<Real>(t.weight, t.weight.size()), total_weight = view_of_nans<Real>(1);
    bool const reduced = reduction != Reduction::none, mean = reduction == Reduction::mean;
    bool const asks_for_total = mean && random.below(2) == 0;
    GuardedMatrix<Real> const losses(reduced ? 1 : c.rows, 1);
    CrossEntropyOptions<Real> options{.ignore_index = t.ignore_index,
                                      .reduction = reduction,
                                      .label_smoothing = t.label_smoothing,
                                      .z_loss = t.z_loss,
                                      .softcap = t.softcap};
    if (!t.weight.empty()) options.weight = kfuse::make_tensor<Real const>(weight.data(), c.columns);
    if (asks_for_total) options.total_weight = kfuse::make_tensor(total_weight.data(), 1);
    auto const loss = Kokkos::View<Real*, Space>(losses.view().data(), losses.rows());
    cross_entropy(space, in.const_view(), labels, loss, gradient.view(), options, workspace);

    // Differences of logits as large as these, and the square of the z-loss. What is capped is rounded, and then
    // probabilities are relative to it.
    std::vector<double> scales, slopes;
    for (int r = 0; r < c.rows; ++r) {
      double scale = std::log(c.columns + 1.0);
      for (int k = 0; k < c.columns; ++k)
        if (double const v = std::abs(x[std::size_t(r) * c.columns + k]); std::isfinite(v)) scale = std::max(scale, v);
      if (t.softcap > 0) scale = std::min(scale, t.softcap + std::log(c.columns + 1.0));
      scales.push_back(4 * scale * (1 + 2 * t.z_loss * scale));
      slopes.push_back(2 * (1 + 4 * t.z_loss * scale) * (1 + t.softcap));
    }
    double const total = mean ? expected.total_weight : 1;
    auto slope = expected.gradient;
    for (double& v : slope) v = v == 0 ? 0 : v / total;
    for (double& s : slopes) s /= total > 0 ? total : 1;
    double const sum_of_scales = std::accumulate(scales.begin(), scales.end(), 0.0) / (total > 0 ? total : 1);
    if (reduced)
      c.compare("loss", losses, {mean ? expected.mean : expected.sum}, {sum_of_scales});
    else
      c.compare("loss", losses, expected.losses, scales);
    c.compare("gradient", gradient, slope, slopes);
    if (asks_for_total)
      c.expect(deviation(download(total_weight), {expected.total_weight}) <= tolerance<Real>(), "total_weight");
    c.unchanged("logits", in, x);
    if (!mean)  // which is one of all rows
      c.same_bits("gradient", [&](int first, int count) {
        auto const y = view_of_nans<Element>(count, c.columns);
        auto const l = view_of_nans<Real>(reduced ? 1 : count);
        cross_entropy(space, rows_of(in, first, count), Kokkos::subview(labels, Kokkos::pair(first, first + count)), l,
                      y, options, workspace);
        return elements(y);
      });
    auto const once = losses.values();
    if (c.number % 2 == 0) {
      cross_entropy(space, in.const_view(), labels, loss, options, workspace);
      c.unchanged("loss without a gradient", losses, once);
    }
    cross_entropy(space, in.const_view(), labels, loss, in.view(), options, workspace);
    c.unchanged("gradient in place", in, gradient.values());
    c.unchanged("loss with a gradient in place", losses, once);
  });
}

// CASES P13
TEST_CASE("rows that are ignored cost nothing and do not count") {
  std::vector<double> const x{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3};
  for (std::int64_t const ignored : {std::int64_t(-100), std::int64_t(1), std::int64_t(255), std::int64_t(1) << 40}) {
    Call<float> call(x, {2, ignored, 0, ignored}, {.ignore_index = ignored});
    CHECK(deviation(call.loss(Reduction::none), {0.407605964, 0, 2.407605964, 0}, 0) <= 1e-6);
    CHECK(call.loss(Reduction::sum)[0] == doctest::Approx(2.815211929).epsilon(1e-6));
    CHECK(call.loss(Reduction::mean)[0] == doctest::Approx(1.407605964).epsilon(1e-6));
    CHECK(download(call.total_weight) == std::vector<double>{2});
    auto const gradient = call.gradient(Reduction::mean);
    for (int const r : {1, 3})
      for (int c = 0; c < 3; ++c) CHECK(gradient[3 * r + c] == 0);

    Call<float> none(std::vector<double>(12, NAN), {ignored, ignored, ignored, ignored}, {.ignore_index = ignored});
    CHECK(none.loss(Reduction::none) == std::vector<double>(4, 0));
    CHECK(none.loss(Reduction::sum) == std::vector<double>{0});
    CHECK(none.loss(Reduction::mean) == std::vector<double>{0});
    CHECK(download(none.total_weight) == std::vector<double>{0});
    CHECK(none.gradient(Reduction::mean) == std::vector<double>(12, 0));
    CHECK(call.found() == DataFault::none);
  }
}

// CASES P14
TEST_CASE("label smoothing leaves out rows that are ignored, by any number") {
  for (std::int64_t const ignored : {std::int64_t(-100), std::int64_t(-1), std::int64_t(3), std::int64_t(255),
                                     std::int64_t(1) << 40, std::numeric_limits<std::int64_t>::min()}) {
    Terms const t{.ignore_index = ignored, .label_smoothing = 0.1};
    Call<float> call({1, 2, 3, 5, 5, 5}, {2, ignored}, t);
    CHECK(call.loss(Reduction::sum)[0] == doctest::Approx(0.507605964).epsilon(1e-6));
    CHECK(call.loss(Reduction::mean)[0] == doctest::Approx(0.507605964).epsilon(1e-6));
    CHECK(deviation(call.gradient(Reduction::mean), {0.0566972398, 0.211395138, -0.268092378, 0, 0, 0}, 1) <= 1e-6);
    CHECK(Call<float>({1, 2, 3}, {0}, t).loss(Reduction::mean)[0] == doctest::Approx(2.307605964).epsilon(1e-6));
    CHECK(call.found() == DataFault::none);
  }
}

// CASES P15
TEST_CASE_TEMPLATE("cross_entropy of the one finite logit among 100000 is zero", Element, float, bf16, double) {
  int const classes = 100000;
  for (int const place : {0, 1, 50000, 99999}) {
    std::vector<double> x(classes, -infinity);
    x[place] = 10;
    Call<Element> call(x, {place}, {});
    // In double the sum is not relative to the logit itself, but to a number beside it.
    double const allowed = std::is_same_v<Element, double> ? 1e-15 : 0;
    CHECK(std::abs(call.loss(Reduction::none)[0]) <= allowed);
    CHECK(deviation(call.gradient(Reduction::none), std::vector<double>(classes, 0), 1) <= allowed);
  }
}
TEST_CASE("cross_entropy with -infinity, and logits that are large") {
  Call<float> hidden({-infinity, 0}, {1}, {});
  CHECK(hidden.loss(Reduction::none) == std::vector<double>{0});
  CHECK(hidden.gradient(Reduction::none) == std::vector<double>{0, 0});
  Call<float> impossible({-infinity, 0}, {0}, {});
  CHECK(impossible.loss(Reduction::none) == std::vector<double>{infinity});
  CHECK(impossible.gradient(Reduction::none) == std::vector<double>{-1, 1});
  Call<float> weightless({-infinity, 0, 0}, {0}, {.weight = {0, 1, 1}, .label_smoothing = 0.5});
  CHECK(weightless.loss(Reduction::none)[0] == doctest::Approx(std::log(2.0) / 3));
  Call<float> large({-1e7, -1e7, -9999999}, {2}, {});
  CHECK(large.loss(Reduction::none)[0] == doctest::Approx(0.551444714).epsilon(1e-6));
  Call<float> smooth({-1e7, -1e7, -9999999}, {2}, {.label_smoothing = 0.3});
  CHECK(smooth.loss(Reduction::none)[0] == doctest::Approx(0.551444714 + 0.2).epsilon(1e-6));
}
TEST_CASE("a row that has no softmax has the loss and the gradient NaN, and others do not mind") {
  for (double const smoothing : {0.0, 0.1})
    for (int const classes : {3, 300, 40000}) {
      std::vector<double> x(std::size_t(4) * classes, 1);
      std::fill_n(x.begin(), classes, -infinity);
      x[classes + classes / 2] = NAN;
      x[std::size_t(3) * classes - 1] = infinity;
      Call<float> call(x, {0, 1, 2, 1}, {.label_smoothing = smoothing});
      auto const loss = call.loss(Reduction::none), gradient = call.gradient(Reduction::none);
      for (int r = 0; r < 3; ++r) {
        CHECK(std::isnan(loss[r]));
        auto const row = gradient.begin() + std::ptrdiff_t(r) * classes;
        CHECK(std::all_of(row, row + classes, [](double v) { return std::isnan(v); }));
      }
      CHECK(loss[3] == doctest::Approx(std::log(double(classes))));
      CHECK(gradient[std::size_t(3) * classes] == doctest::Approx((1 - smoothing) / classes));
    }
}

// CASES P16
TEST_CASE("sums and losses of 16-bit logits are kept in float") {
  CHECK(Call<bf16>(std::vector<double>(512, 0), {3}, {}).loss(Reduction::none)[0] ==
        doctest::Approx(6.238324625).epsilon(1e-7));
  CHECK(Call<bf16>(std::vector<double>(4096, 0), {3}, {}).loss(Reduction::none)[0] ==
        doctest::Approx(8.317766167).epsilon(1e-7));
  CHECK(Call<bf16>(std::vector<double>(8000, 0), std::vector<std::int64_t>(1000, 7), {}).loss(Reduction::mean)[0] ==
        doctest::Approx(2.079441542).epsilon(1e-6));
}

TEST_CASE("a label outside of the classes is reported, and reads nothing") {
  for (std::int64_t const label : {std::int64_t(3), std::int64_t(-1), std::int64_t(-2), std::int64_t(1) << 32,
                                   std::int64_t(-1) << 63, std::numeric_limits<std::int64_t>::max()})
    for (double const smoothing : {0.0, 0.1}) {
      CAPTURE(label);
      Terms const t{.weight = {1, 2, 3}, .label_smoothing = smoothing};
      Call<float> call({1, 2, 3, 1, 2, 3}, {1, label}, t);
      auto const loss = call.loss(Reduction::none);
      CHECK(call.found() == DataFault::label);
      CHECK(loss[0] == doctest::Approx(reference({1, 2, 3}, 1, t).loss));
      CHECK(std::isnan(loss[1]));
      CHECK(std::isnan(call.loss(Reduction::sum)[0]));
      CHECK(std::isnan(call.loss(Reduction::mean)[0]));
      CHECK(download(call.total_weight) == std::vector<double>{2});
      auto const gradient = call.gradient(Reduction::mean);
      CHECK(std::vector<double>(gradient.begin() + 3, gradient.end()) == std::vector<double>(3, 0));
    }
  Call<float, int> narrow({1, 2, 3}, {-1}, {});
  CHECK(std::isnan(narrow.loss(Reduction::none)[0]));
  CHECK(narrow.found() == DataFault::label);
}

TEST_CASE("few long rows that are shared by several teams, and the same in place") {
  int const rows = 2, classes = 100003;
  auto const x = random_values<bf16>(std::size_t(rows) * classes, 1);
  Call<bf16, int> call(x, {7, 100002}, {.label_smoothing = 0.1, .z_loss = 1e-4});
  auto const gradient = call.gradient(Reduction::mean);
  auto const loss = view_of_nans<float>(1);
  cross_entropy(Space(), call.logits, call.labels, loss, call.logits, call.options(Reduction::mean), call.workspace);
  CHECK(download(call.logits) == gradient);
  CHECK(download(loss) ==
        Call<bf16, int>(x, {7, 100002}, {.label_smoothing = 0.1, .z_loss = 1e-4}).loss(Reduction::mean));
}

// No gradient but the labels' exceeds 1e-4: each is held to its own size.
TEST_CASE_TEMPLATE("cross_entropy of 2^20 classes, with the gradient in place", Element, double, float, bf16) {
  int const rows = 2, classes = 1 << 20;
  auto const x = random_values<Element>(std::size_t(rows) * classes, 1, -4, 4);
  std::vector<std::int64_t> const labels{classes - 1, classes / 2};
  auto const expected = reference(x, labels, {});
  using Real = kfuse::Real<Element>;
  Call<Element> call(x, labels, {});
  CHECK(deviation(call.loss(Reduction::none), expected.losses, 0) <= tolerance<Real>());
  auto const loss = view_of_nans<Real>(rows);
  cross_entropy(Space(), call.logits, call.labels, loss, call.logits, call.options(Reduction::none), call.workspace);
  CHECK(deviation(download(loss), expected.losses, 0) <= tolerance<Real>());
  CHECK(deviation(download(call.logits), expected.gradient, 0) <= tolerance<Element>());
}

// CASES P09
TEST_CASE("cross_entropy of nothing writes nothing") {
  kfuse::Workspace<Space> workspace(1 << 12);
  auto const loss = view_of_nans<float>(1);
  cross_entropy(Space(), view_of_nans<float>(0, 4), view_of<int>({}, 0), loss, view_of_nans<float>(0, 4), {},
                workspace);
  CHECK(std::isnan(download(loss)[0]));
}

TEST_CASE("cross_entropy refuses what does not fit, and writes nothing") {
  kfuse::Workspace<Space> workspace(1 << 12), small(256);
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4), g = view_of_nans<float>(3, 4);
  auto const labels = view_of<int>({1, 2, 3}, 3), few = view_of<int>({1, 2}, 2);
  auto const one = view_of_nans<float>(1), each = view_of_nans<float>(3), total = view_of_nans<float>(1);
  CrossEntropyOptions<float> const none{.reduction = Reduction::none};
  auto const refused = [&](auto const& labels, auto const& loss, CrossEntropyOptions<float> options,
                           std::string const& why) {
    if (options.reduction == Reduction::mean) options.total_weight = kfuse::make_tensor(total.data(), 1);
    auto const text = error_of([&] { cross_entropy(Space(), x, labels, loss, g, options, workspace); });
    CAPTURE(text);
    CHECK(contains(text, "kfuse::cross_entropy"));
    CHECK(contains(text, why));
  };
  refused(few, each, none, "one label for each row");
  refused(labels, one, none, "one entry for each row");
  refused(labels, each, {}, "loss: has 3 entries");
  refused(labels, one, {.label_smoothing = 1.5}, "label_smoothing must be in [0, 1]");
  refused(labels, one, {.label_smoothing = NAN}, "label_smoothing");
  refused(labels, one, {.z_loss = -1}, "z_loss");
  refused(labels, one, {.softcap = -3}, "softcap");
  refused(labels, one, {.reduction = Reduction(7)}, "reduction: there is none with the number 7");
  refused(labels, one, {.weight = kfuse::make_tensor<float const>(x.data(), 3)}, "weight: has 3 entries");
  CHECK(contains(error_of([&] { cross_entropy(Space(), x, labels, one, view_of_nans<float>(4, 3), {}, workspace); }),
                 "kfuse::cross_entropy: gradient: shape [4, 3]"));
  CHECK(contains(error_of([&] { cross_entropy(Space(), x, labels, one, g, {}, small); }),
                 "kfuse::cross_entropy: workspace: 4 bytes are needed"));
  CHECK(contains(error_of([&] {
                   auto const inside = Kokkos::View<float*, Space>(x.data() + 3, 1);
                   cross_entropy(Space(), x, labels, inside, {}, workspace);
                 }),
                 "loss: overlaps the logits"));
  CHECK(contains(error_of([&] {
                   auto const inside = Kokkos::View<float*, Space>(g.data(), 3);
                   cross_entropy(Space(), x, labels, inside, g, none, workspace);
                 }),
                 "loss: overlaps the gradient"));
  for (auto const& untouched : {download(g), download(one), download(each), download(total)})
    for (double const v : untouched) CHECK(std::isnan(v));
}

// CASES P09
TEST_CASE("rows without classes have no loss, and are refused") {
  kfuse::Workspace<Space> workspace(1 << 12);
  auto const x = view_of_nans<float>(3, 0);
  auto const labels = view_of<int>({1, 2, 3}, 3);
  auto const loss = view_of_nans<float>(3);
  for (Reduction const reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
    auto const to = kfuse::make_tensor(loss.data(), reduction == Reduction::none ? 3 : 1);
    for (bool const with_gradient : {false, true}) {
      auto const error = error_of([&] {
        if (with_gradient)
          cross_entropy(Space(), x, labels, to, x, {.reduction = reduction}, workspace);
        else
          cross_entropy(Space(), x, labels, to, {.reduction = reduction}, workspace);
      });
      CHECK(contains(error, "kfuse::cross_entropy: logits: shape [3, 0] has no classes"));
    }
  }
  CHECK(same_bits(loss, view_of_nans<float>(3)));
}

// CASES P11: the launches of one call are checked against one another, not each by itself.
TEST_CASE("an output of cross_entropy on anything else is refused, and nothing is written") {
  constexpr int rows = 4, classes = 4;
  for (Reduction const reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
    bool const reduced = reduction != Reduction::none;
    kfuse::Workspace<Space> workspace(1 << 12);
    // Labels of any bits: they may be the values of something else.
    auto const x = view_of<float>(random_values<float>(rows * classes, 1), rows, classes),
               g = view_of_nans<float>(rows, classes);
    auto const labels = view_of<int>({0, 1, 2, 3}, rows);
    auto const weight = view_of<float>({1, 2, 3, 4}, classes);
    auto const loss = view_of_nans<float>(rows), total = view_of_nans<float>(1);
    Kokkos::View<int, Space> const status("status");
    struct Argument {
      char const* name;
      float* data;
      int size;
      bool written;
    };
    int const losses = reduced ? 1 : rows;
    std::vector<Argument> const all{{"logits", x.data(), rows * classes, false},
                                    {"labels", reinterpret_cast<float*>(labels.data()), rows, false},
                                    {"weight", weight.data(), classes, false},
                                    {"gradient", g.data(), rows * classes, true},
                                    {"loss", loss.data(), losses, true},
                                    {"total_weight", total.data(), reduction == Reduction::mean ? 1 : 0, true},
                                    {"status", reinterpret_cast<float*>(status.data()), 1, true}};
    auto const bits = [&] {
      return std::vector{elements(x), elements(g), elements(weight), elements(loss), elements(total)};
    };
    auto const before = bits();
    auto const labels_before = elements(labels);
    for (std::size_t o = 3; o < all.size(); ++o)
      for (std::size_t other = 0; other < all.size(); ++other)
        for (bool const at_end : {false, true}) {
          if (o == other || all[o].size == 0 || all[other].size == 0) continue;
          auto moved = all;
          moved[o].data = all[other].data + (at_end ? all[other].size - 1 : 0);
          bool const in_place = moved[3].data == all[0].data;
          if (in_place) continue;
          CAPTURE(int(reduction));
          CAPTURE(all[o].name);
          CAPTURE(all[other].name);
          CrossEntropyOptions<float> options{
              .weight = kfuse::make_tensor<float const>(moved[2].data, classes),
              .reduction = reduction,
              .status = Kokkos::View<int, Space, Kokkos::MemoryUnmanaged>(reinterpret_cast<int*>(moved[6].data))};
          if (reduction == Reduction::mean) options.total_weight = kfuse::make_tensor(moved[5].data, 1);
          auto const error = error_of([&] {
            cross_entropy(Space(), x, labels, kfuse::make_tensor(moved[4].data, losses),
                          kfuse::make_tensor(moved[3].data, rows, classes), options, workspace);
          });
          CHECK(contains(error, "kfuse::cross_entropy"));
          CHECK((contains(error, "overlap") || contains(error, "lies in")));
        }
    auto const after = bits();
    for (std::size_t i = 0; i < before.size(); ++i)
      CHECK(std::memcmp(before[i].data(), after[i].data(), before[i].size() * sizeof(float)) == 0);
    CHECK(elements(labels) == labels_before);
  }
}

// CASES P07
TEST_CASE("options whose values are not side by side are refused") {
  kfuse::Workspace<Space> workspace(1 << 12);
  auto const x = view_of<float>(random_values<float>(12, 1), 3, 4);
  auto const labels = view_of<int>({1, 2, 3}, 3);
  auto const weight = view_of<float>({1, 9, 2, 9, 3, 9, 4, 9}, 8);
  auto const loss = view_of_nans<float>(1);
  CHECK(contains(error_of([&] {
                   cross_entropy(Space(), x, labels, loss, {.weight = {weight.data(), {4}, {2}}}, workspace);
                 }),
                 "kfuse::cross_entropy: weight: the last dimension is not contiguous"));
  CHECK(contains(error_of([&] {
                   cross_entropy(Space(), x, labels, loss, {.total_weight = {weight.data(), {2}, {2}}}, workspace);
                 }),
                 "kfuse::cross_entropy: total_weight: the last dimension is not contiguous"));
  CHECK(std::isnan(download(loss)[0]));
}

TEST_CASE("cross_entropy moves its arguments once") {
  auto const x = kfuse::make_tensor(reinterpret_cast<bf16*>(1 << 20), 1000, 64);  // addresses that nobody uses
  auto const labels = kfuse::make_tensor(reinterpret_cast<int*>(2 << 20), 1000);
  auto const loss = kfuse::make_tensor(reinterpret_cast<float*>(3 << 20), 1000);
  auto const one = kfuse::make_tensor(loss.data, 1);
  std::size_t const matrix = 1000 * 64 * 2;
  CrossEntropyOptions<float> const none{.reduction = Reduction::none}, mean{}, sum{.reduction = Reduction::sum};
  auto const bytes = [&](auto const&... a) { return kfuse::cross_entropy_traffic(Space(), a...).bytes(); };
  CHECK(bytes(x, labels, loss, none) == matrix + 1000 * (4 + 4));
  CHECK(bytes(x, labels, loss, x, none) == 2 * matrix + 1000 * (4 + 4));
  CHECK(bytes(x, labels, one, sum) == matrix + 1000 * (4 + 4) + 1000 * 4 + 4);
  // The labels twice; the total weight is written once and read twice.
  CHECK(bytes(x, labels, one, mean) == matrix + 1000 * (4 + 4) + 1000 * (4 + 4) + 4 + 3 * 4);
}

}  // namespace
