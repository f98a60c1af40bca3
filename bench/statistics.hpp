// SPDX-License-Identifier: Apache-2.0
// What many measurements of one time come to.
#ifndef KFUSE_BENCH_STATISTICS_HPP
#define KFUSE_BENCH_STATISTICS_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

namespace bench {

// The value below which `fraction` of the sorted `values` lie, interpolated between neighbours.
inline double quantile(std::vector<double> const& values, double fraction) {
  double const place = fraction * double(values.size() - 1);
  std::size_t const below = std::size_t(place);
  std::size_t const above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - double(below)) * (values[above] - values[below]);
}

struct Seconds {
  double median, p10, p90;
};

// Nothing, if there are no measurements or some of them is no time at all: that is a clock too coarse or work that did
// not run, and no speed follows from it.
inline std::optional<Seconds> summary(std::vector<double> seconds) {
  for (double s : seconds)
    if (!(s > 0) || !std::isfinite(s)) return std::nullopt;
  if (seconds.empty()) return std::nullopt;
  std::sort(seconds.begin(), seconds.end());
  return Seconds{quantile(seconds, 0.5), quantile(seconds, 0.1), quantile(seconds, 0.9)};
}

}  // namespace bench

#endif
