// SPDX-License-Identifier: Apache-2.0
// The results of the program for people.
#ifndef KFUSE_BENCH_TABLE_HPP
#define KFUSE_BENCH_TABLE_HPP

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "report.hpp"
#include <fmt/format.h>

namespace bench {

// One line of a table: the first cell to the left, the others to the right.
inline std::string aligned(std::vector<std::string> const& cells, std::vector<std::size_t> const& widths) {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i)
    text += i == 0 ? fmt::format("{:<{}}", cells[i], widths[i]) : fmt::format("  {:>{}}", cells[i], widths[i]);
  return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
}
// Columns as wide as their widest cell.
inline std::string table(std::vector<std::vector<std::string>> const& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (auto const& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string text;
  for (auto const& line : lines) text += aligned(line, widths);
  return text;
}

inline std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}
inline std::string bytes_text(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1e6) return fmt::format("{:.1f} kB", bytes * 1e-3);
  if (bytes < 1e9) return fmt::format("{:.1f} MB", bytes * 1e-6);
  if (bytes < 1e12) return fmt::format("{:.2f} GB", bytes * 1e-9);
  return fmt::format("{:.2f} TB", bytes * 1e-12);
}
inline std::string rate_text(double per_second, char const* unit) {
  for (auto const& [scale, prefix] : {std::pair(1e12, 'T'), std::pair(1e9, 'G'), std::pair(1e6, 'M')})
    if (per_second >= scale) return fmt::format("{:.2f} {}{}", per_second / scale, prefix, unit);
  return fmt::format("{:.2f} k{}", per_second * 1e-3, unit);
}

// From this many operations a byte on, matrix work is what takes the time.
constexpr double matrix_intensity = 16;

// The runs of one piece of work, the first being what the others are faster than.
inline std::string table(std::vector<Run> const& runs) {
  std::vector<std::vector<std::string>> lines{
      {"mode", "launches", "median", "p10 - p90", "bytes", "GB/s", "of copy", "TFLOP/s", "deviation", "speed-up"}};
  auto const& first = runs.front().seconds;
  for (auto const& run : runs) {
    std::vector<std::string> line(lines.front().size(), "-");
    line[0] = run.mode;
    line[1] = std::to_string(run.launches);
    line[4] = bytes_text(double(run.bytes));
    if (run.max_deviation) line[8] = fmt::format("{:.1e}", *run.max_deviation);
    if (!run.error.empty()) line[2] = "failed";
    if (run.seconds) {
      auto const& s = *run.seconds;
      line[2] = time_text(s.median);
      line[3] = fmt::format("{} - {}", time_text(s.p10), time_text(s.p90));
      line[5] = fmt::format("{:.1f}", double(run.bytes) / s.median * 1e-9);
      if (run.fraction_of_copy) line[6] = fmt::format("{:.3f}", *run.fraction_of_copy);
      if (double(run.flops) >= matrix_intensity * double(run.bytes))
        line[7] = fmt::format("{:.3g}", double(run.flops) / s.median * 1e-12);
      if (first) line[9] = fmt::format("{:.2f}", first->median / s.median);
    }
    lines.push_back(line);
  }
  return table(lines);
}

// One line: what fusing and replaying brought.
inline std::string verdict(std::vector<Run> const& runs) {
  auto const find = [&](char const* mode) -> Run const* {
    for (auto const& run : runs)
      if (run.mode == mode && run.seconds) return &run;
    return nullptr;
  };
  auto const *eager = find("eager"), *fused = find("fused"), *replay = find("replay");
  auto const gain = [](Run const& from, Run const& to) {
    double const factor = from.seconds->median / to.seconds->median;
    return factor >= 1 ? fmt::format("{:.2f} times as fast", factor) : fmt::format("{:.2f} times slower", 1 / factor);
  };
  std::string text;
  if (eager && fused)
    text += fmt::format("Fused: {} {} instead of {}, {:.0f} % of the bytes, {}.", fused->launches,
                        fused->launches == 1 ? "launch" : "launches", eager->launches,
                        100 * double(fused->bytes) / double(eager->bytes), gain(*eager, *fused));
  if (fused && replay) text += fmt::format("{}Replaying that: {}.", text.empty() ? "" : " ", gain(*fused, *replay));
  if (eager && fused && replay) text += fmt::format(" Together {}.", gain(*eager, *replay));
  return text;
}

}  // namespace bench

#endif
