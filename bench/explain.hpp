// SPDX-License-Identifier: Apache-2.0
// What a piece of work launches, what that moves and computes, and how long it takes at least on this device.
#ifndef KFUSE_BENCH_EXPLAIN_HPP
#define KFUSE_BENCH_EXPLAIN_HPP

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "prepare.hpp"
#include "table.hpp"
#include <fmt/format.h>

namespace bench {

// Bytes and operations a second; the latter of matrix products in the element type of the work.
struct Roofline {
  double copy, matrix;

  double seconds(kfuse::Traffic const& t) const { return std::max(double(t.bytes()) / copy, double(t.flops) / matrix); }
  char const* bound(kfuse::Traffic const& t) const {
    return double(t.bytes()) / copy >= double(t.flops) / matrix ? "memory" : "arithmetic";
  }
};

inline double least_seconds(Cost const& cost, Roofline const& roofline) {
  double sum = 0;
  for (auto const& line : cost.lines) sum += roofline.seconds(line.traffic);
  return sum;
}

inline std::string launches_text(std::string const& mode, Cost const& cost, Roofline const& roofline) {
  std::vector<std::vector<std::string>> lines{
      {mode, "launches", "read", "written", "GFLOP", "FLOP/byte", "at least", "bound by"}};
  auto const line = [&](std::string const& label, int launches, kfuse::Traffic const& t, double seconds,
                        std::string const& bound) {
    lines.push_back({label, std::to_string(launches), bytes_text(double(t.bytes_read)),
                     bytes_text(double(t.bytes_written)), fmt::format("{:.3g}", double(t.flops) * 1e-9),
                     fmt::format("{:.2f}", t.intensity()), time_text(seconds), bound});
  };
  for (auto const& l : cost.lines)
    line("  " + l.label, l.launches, l.traffic, roofline.seconds(l.traffic), roofline.bound(l.traffic));
  line("  together", cost.launches, cost.traffic, least_seconds(cost, roofline), "");
  return table(lines);
}

// One paragraph: where the work stands, and what fusing it saves.
inline std::string conclusion(Cost const& eager, Cost const& fused, Roofline const& roofline, std::string const& device,
                              std::string const& element) {
  std::string text = fmt::format(
      "{} copies {} and multiplies {} matrices at {}: below {:.3g} FLOP/byte memory is the bound.\n"
      "Fused, the work has {:.2f} FLOP/byte; its bound is {}, and it takes {} at least.\n",
      device, rate_text(roofline.copy, "B/s"), element, rate_text(roofline.matrix, "FLOP/s"),
      roofline.matrix / roofline.copy, fused.traffic.intensity(), roofline.bound(fused.traffic),
      time_text(least_seconds(fused, roofline)));
  if (eager.lines.empty()) return text;
  double const before = double(eager.traffic.bytes()), after = double(fused.traffic.bytes());
  return text +
         fmt::format("Fusing takes {} of {} launches away, and {} of {} ({:.1f} %); {} at least, instead of {}.\n",
                     eager.launches - fused.launches, eager.launches, bytes_text(before - after), bytes_text(before),
                     100 * (before - after) / before, time_text(least_seconds(fused, roofline)),
                     time_text(least_seconds(eager, roofline)));
}

}  // namespace bench

#endif
