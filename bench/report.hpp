// SPDX-License-Identifier: Apache-2.0
// The results of the program as JSON, and files that are either whole or not there.
#ifndef KFUSE_BENCH_REPORT_HPP
#define KFUSE_BENCH_REPORT_HPP

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "statistics.hpp"
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace bench {

// One way of doing one piece of work.
struct Run {
  std::string work;  // "layer/<model>/<phase>" or "op/<name>"
  std::string mode;  // "eager", "fused" or "replay"
  std::string element;
  std::vector<std::pair<std::string, int>> shape;
  int launches = 0;
  std::size_t bytes = 0, flops = 0;        // as the operators state them
  std::optional<Seconds> seconds;          // for one layer
  std::optional<double> fraction_of_copy;  // time of a device copy of as many bytes, by the median
  std::optional<double> fraction_of_read;  // time of reading as many, where hardly any are written
  std::optional<double> max_deviation;     // relative, from `reference`
  std::string reference;                   // "fp64", or the mode it was held against; empty: not checked
  std::string note;                        // the kernel chosen, why it was not recorded, ...
  std::string error;                       // why there are no times
  std::optional<double> bar;               // what it shall be at least, or at most if that is a time; ...
  std::string bar_of;                      // ... as a fraction of a "copy" or a "read", or in "seconds"
  std::string verdict;                     // "reached" or "missed by ..."

  bool is_of_read() const { return fraction_of_read && bar_of != "copy"; }
  // What it is judged by where that is no time.
  std::optional<double> fraction() const { return is_of_read() ? fraction_of_read : fraction_of_copy; }
};

// Work that was asked for and not done.
struct Skipped {
  std::string work;
  std::vector<std::pair<std::string, int>> shape;
  std::string reason;
};

struct Report {
  std::string version, date, cadence;
  std::string device, space, software;
  std::optional<double> copy_bytes_per_second;
  std::vector<Run> runs;
  std::vector<Skipped> skipped = {};
};

// What JSON cannot say, and what is not known, is null.
inline nlohmann::ordered_json number(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}
inline nlohmann::ordered_json text_or_null(std::string const& text) {
  if (text.empty()) return nullptr;
  return text;
}

inline nlohmann::ordered_json to_json(std::vector<std::pair<std::string, int>> const& shape) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (auto const& [name, value] : shape) json[name] = value;
  return json;
}

inline nlohmann::ordered_json to_json(Run const& run) {
  auto const seconds = [&](double Seconds::*part) {
    return number(run.seconds ? std::optional(*run.seconds.*part) : std::nullopt);
  };
  return {{"work", run.work},
          {"mode", run.mode},
          {"element", run.element},
          {"shape", to_json(run.shape)},
          {"median_seconds", seconds(&Seconds::median)},
          {"p10_seconds", seconds(&Seconds::p10)},
          {"p90_seconds", seconds(&Seconds::p90)},
          {"launches", run.launches},
          {"bytes", run.bytes},
          {"flops", run.flops},
          {"fraction_of_copy", number(run.fraction_of_copy)},
          {"fraction_of_read", number(run.fraction_of_read)},
          {"max_deviation", number(run.max_deviation)},
          {"reference", text_or_null(run.reference)},
          {"bar", number(run.bar)},
          {"bar_of", text_or_null(run.bar_of)},
          {"verdict", text_or_null(run.verdict)},
          {"note", text_or_null(run.note)},
          {"error", text_or_null(run.error)}};
}

inline std::string to_json(Report const& report) {
  nlohmann::ordered_json json = {{"kfuse", report.version},
                                 {"date", report.date},
                                 {"cadence", report.cadence},
                                 {"device",
                                  {{"name", report.device},
                                   {"space", report.space},
                                   {"software", report.software},
                                   {"copy_bytes_per_second", number(report.copy_bytes_per_second)}}},
                                 {"runs", nlohmann::ordered_json::array()},
                                 {"skipped", nlohmann::ordered_json::array()}};
  for (auto const& run : report.runs) json["runs"].push_back(to_json(run));
  for (auto const& [work, shape, reason] : report.skipped)
    json["skipped"].push_back({{"work", work}, {"shape", to_json(shape)}, {"reason", reason}});
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// A file that appears under its name when it is whole. That it can be written is found out at once, before the work.
class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)), part_(path_ + ".part" + std::to_string(getpid())) {
    std::error_code ignored;
    bool const folder = std::filesystem::is_directory(path_, ignored);
    bool const writable = !path_.empty() && !folder && std::ofstream(part_).good();
    remove_part();
    if (!writable)
      throw UsageError("--json: '" + path_ + "' cannot be written" + (folder ? " (it is a folder)" : "") +
                       "; name a file in a folder that exists and is yours to write");
  }
  ~NewFile() { remove_part(); }
  NewFile(NewFile const&) = delete;
  NewFile& operator=(NewFile const&) = delete;

  void write(std::string const& text) const {
    std::ofstream out(part_, std::ios::binary);
    out << text;
    out.close();
    if (!out.good() || std::rename(part_.c_str(), path_.c_str()) != 0)
      throw UsageError("--json: '" + path_ + "' could not be written; is the disk full?");
  }

 private:
  void remove_part() const {
    std::error_code ignored;
    std::filesystem::remove(part_, ignored);
  }

  std::string path_, part_;
};

}  // namespace bench

#endif
