// SPDX-License-Identifier: Apache-2.0
// How fast an operator shall be, and whether it is.
#ifndef KFUSE_BENCH_BAR_HPP
#define KFUSE_BENCH_BAR_HPP

#include <kfuse/core/element_type.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "report.hpp"

namespace bench {

// How fast an operator shall be on the device that it is tuned on, cold and in 16-bit elements: one of the two bounds.
struct Bar {
  std::vector<std::pair<std::string, int>> sizes = {};  // those left out are the entry's own
  double at_least = 0;      // fraction of the speed of a copy that moves as many bytes; of a read, where it only reads
  double most_seconds = 0;  // for one call, replayed; for work too small to be held against a copy
  int calls = 1;            // on memory of its own each; several are held against it when replayed, in one graph
  bool of_copy = false;     // against a copy, even where it only reads
};

// Wider elements are given a twentieth more time.
inline Bar bar_in(kfuse::ElementType type, Bar bar) {
  if (type != kfuse::ElementType::fp64 && type != kfuse::ElementType::fp32) return bar;
  bar.at_least *= 0.95;
  bar.most_seconds /= 0.95;
  return bar;
}

// With so many decimals, or as many as show two digits.
inline std::string missed_by(double missing, int decimals) {
  int const leading = int(std::floor(std::log10(missing)));
  char text[64];
  std::snprintf(text, sizeof(text), "missed by %.*f", std::max(decimals, 1 - leading), missing);
  return text;
}

// Says in the run that the bar is about whether it is reached: the fused one, or the replayed one for a time and for
// several calls.
inline void hold_against(Bar const& bar, Run& run) {
  bool const is_time = bar.most_seconds > 0;
  if (run.mode != (is_time || bar.calls > 1 ? "replay" : "fused")) return;
  run.bar = is_time ? bar.most_seconds : bar.at_least;
  run.bar_of = is_time ? "seconds" : run.fraction_of_read && !bar.of_copy ? "read" : "copy";
  auto const fraction = run.fraction();
  if (!run.seconds || (!is_time && !fraction)) return;
  double const missing = is_time ? run.seconds->median - bar.most_seconds : bar.at_least - *fraction;
  run.verdict = missing <= 0 ? "reached" : is_time ? missed_by(missing * 1e6, 2) + " us" : missed_by(missing, 3);
}

}  // namespace bench

#endif
