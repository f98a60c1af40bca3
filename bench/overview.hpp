// SPDX-License-Identifier: Apache-2.0
// Many operators in one table, whose lines are printed as they come.
#ifndef KFUSE_BENCH_OVERVIEW_HPP
#define KFUSE_BENCH_OVERVIEW_HPP

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "table.hpp"
#include <fmt/format.h>

namespace bench {

inline std::string shape_text(std::vector<std::pair<std::string, int>> const& shape) {
  std::string text;
  for (auto const& [name, value] : shape) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  return text;
}

inline std::string bar_text(Run const& run) {
  return run.bar_of == "seconds" ? fmt::format("{:.2f} us", *run.bar * 1e6) : fmt::format("{:.3f}", *run.bar);
}

class Overview {
 public:
  // `works`: what the lines will be about.
  explicit Overview(std::vector<std::string> const& works) {
    for (auto const& work : works) widths_[0] = std::max(widths_[0], work.size());
  }

  std::string head() const {
    return line({"operator", "launches", "fused", "replay", "bytes", "of copy", "bar", "verdict"});
  }
  // The runs of one piece of work.
  std::string line(std::string const& work, std::vector<Run> const& runs) const {
    std::vector<std::string> cells(widths_.size(), "-");
    cells[0] = work;
    for (Run const& run : runs) {
      std::string const time = run.seconds ? time_text(run.seconds->median) : "failed";
      if (run.mode == "replay") cells[3] = time;
      if (run.mode == "fused") {
        cells[1] = std::to_string(run.launches);
        cells[2] = time;
        cells[4] = bytes_text(double(run.bytes));
        cells[5] = fraction_text(run);
      }
      if (run.bar) {
        cells[5] = fraction_text(run);
        cells[6] = bar_text(run);
      }
      if (!run.verdict.empty()) cells[7] = run.verdict;
      if (!run.error.empty()) cells[7] = "wrong result";
    }
    return line(cells);
  }
  std::string skipped(std::string const& work, std::string const& why) const {
    return fmt::format("{:<{}}  skipped: {}\n", work, widths_[0], why);
  }

 private:
  static std::string fraction_text(Run const& run) {
    auto const fraction = run.fraction();
    return fraction ? fmt::format("{:.3f}{}", *fraction, run.is_of_read() ? " (read)" : "") : "-";
  }
  std::string line(std::vector<std::string> const& cells) const { return aligned(cells, widths_); }

  std::vector<std::size_t> widths_{8, 8, 9, 9, 8, 12, 7, 16};
};

}  // namespace bench

#endif
