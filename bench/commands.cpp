// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>

#include "explain.hpp"
#include "roofline.hpp"
#include "session.hpp"
#include <fmt/chrono.h>
#include <fmt/format.h>

namespace bench {

namespace {

template <class Space>
using Jobs = std::function<std::vector<Job<Space>>()>;

template <class Space>
Job<Space> op_job(Entry const& entry, Sizes const& sizes, kfuse::ElementType type) {
  auto const make = [=](Memory<Space>& memory) { return entry.make(memory, type, sizes); };
  return {"op/" + entry.name, type, {sizes.begin(), sizes.end()}, make};
}

// What the command line asks for, read before Kokkos starts; f is called with a list of jobs for the space asked for.
template <class F>
int with_jobs(Options const& options, F const& f) {
  auto const type = element_asked(options);
  auto const ops = ops_asked(options);
  auto const layer = ops.empty() ? std::optional(layer_asked(options)) : std::nullopt;
  return in_session(options.space, [&]<class Space>(Space const& space) {
    std::vector<Job<Space>> jobs;
    for (auto const& [entry, sizes] : ops) jobs.push_back(op_job<Space>(entry, sizes, type));
    if (layer) jobs.push_back(layer_job<Space>(*layer, type));
    return f(space, jobs);
  });
}

std::string shape_text(std::vector<std::pair<std::string, int>> const& shape) {
  std::string text;
  for (auto const& [name, value] : shape) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  return text;
}

void print_device(Report const& report) {
  fmt::print("{} ({}; {}), {}\n", report.device, report.space, report.software,
             report.copy_bytes_per_second ? "copies " + rate_text(*report.copy_bytes_per_second, "B/s")
                                          : "speed of a copy unknown");
}

// Prints the table of one piece of work. Returns whether all of it is right.
bool print(std::vector<Run> const& runs) {
  Run const& first = runs.front();
  fmt::print("\n{}, {}: {}\n{}", first.work, first.element, shape_text(first.shape), table(runs));
  if (!first.note.empty()) fmt::print("{}\n", first.note);
  bool right = true;
  for (Run const& run : runs) {
    if (run.mode == "replay" && run.note != first.note) fmt::print("replay: {}\n", run.note);
    if (!run.error.empty())
      fmt::print(stderr, "kfuse-bench: {}, {}: wrong result: {}\n", run.work, run.mode, run.error);
    if (run.seconds && run.fraction_of_copy.value_or(0) > 1.1)
      fmt::print("{} is faster than a copy of as many bytes: part of its data stays in a cache\n", run.mode);
    right = right && run.error.empty();
  }
  std::string const summary = verdict(runs);
  if (!summary.empty()) fmt::print("{}\n", summary);
  std::fflush(stdout);
  return right;
}

int measure(Options const& options) {
  MeasureOptions const how = measure_asked(options);
  std::unique_ptr<NewFile> file;
  if (options.json) file = std::make_unique<NewFile>(*options.json);
  return with_jobs(options, [&]<class Space>(Space const& space, std::vector<Job<Space>> const& jobs) {
    auto const facts = kfuse::device_facts(space);
    Progress const progress;
    progress.say("measuring the speed of a copy");
    Report report{.version = KFUSE_VERSION,
                  .date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
                  .cadence = how.cadence == Cadence::cold ? "cold" : "back-to-back",
                  .device = facts.name,
                  .space = facts.space,
                  .software = facts.versions,
                  .copy_bytes_per_second = copy_speed(space),
                  .runs = {}};
    bool right = true;
    for (auto const& job : jobs) {
      progress.say("preparing " + job.work);
      auto const runs = Measurement<Space>(space, job, how, progress).runs();
      progress.say("");
      if (report.runs.empty()) print_device(report);
      right = print(runs) && right;
      report.runs.insert(report.runs.end(), runs.begin(), runs.end());
    }
    if (file) file->write(to_json(report));
    return right ? success : wrong_result;
  });
}

}  // namespace

int layer(Options const& options) {
  return measure(options);
}
int op(Options const& options) {
  return measure(options);
}

int explain(Options const& options) {
  return with_jobs(options, [&]<class Space>(Space const& space, std::vector<Job<Space>> const& jobs) {
    auto const copy = copy_speed(space);
    auto const matrix = matrix_speed(space, jobs.front().element);
    if (!copy || !matrix) throw std::runtime_error("the clock of this device is too coarse to tell its speed");
    Roofline const roofline{*copy, *matrix};
    kfuse::Blas<Space> blas(space);
    for (auto const& job : jobs) {
      Counted<Space> const counted(space, blas, job);
      fmt::print("{}, {}: {}\n\n", job.work, kfuse::name(job.element), shape_text(job.shape));
      if (counted.work.eager) fmt::print("{}\n", launches_text("eager", counted.eager, roofline));
      fmt::print("{}\n", launches_text("fused", counted.fused, roofline));
      if (!counted.work.path.empty()) fmt::print("{}\n", counted.work.path);
      fmt::print("{}\n", conclusion(counted.eager, counted.fused, roofline, kfuse::device_facts(space).name,
                                    kfuse::name(job.element)));
    }
    return success;
  });
}

int device(Options const& options) {
  return in_session(options.space, []<class Space>(Space const& space) {
    auto const facts = kfuse::device_facts(space);
    fmt::print(
        "{}\n  space            {}\n  software         {}\n  multiprocessors  {}\n  last cache       {}\n"
        "  memory           {}, of which {} are free\n",
        facts.name, facts.space, facts.versions, facts.multiprocessors, bytes_text(double(facts.cache_bytes)),
        bytes_text(double(facts.memory_total)), bytes_text(double(facts.memory_free)));
    auto const speed = [](std::optional<double> value, char const* unit) {
      return value ? rate_text(*value, unit) : "unknown";
    };
    for (int shift = 24; shift <= (on_host<Space> ? 28 : 32); shift += 2) {
      std::size_t const bytes = std::size_t(1) << shift;
      fmt::print("  copy, {:>8}   {}\n", bytes_text(double(bytes)), speed(copy_speed(space, bytes), "B/s"));
    }
    for (auto type : element_types)
      fmt::print("  matrices, {}   {}\n", kfuse::name(type), speed(matrix_speed(space, type), "FLOP/s"));
    return success;
  });
}

int list() {
  std::vector<std::string> models = kfuse::preset_names(), elements;
  for (auto type : element_types) elements.push_back(kfuse::name(type));
  fmt::print("layers:   {}, or a config.json\nelements: {}\nspaces:   {}\nops:\n", fmt::join(models, ", "),
             fmt::join(elements, ", "), fmt::join(space_names(), ", "));
  auto entries = registry();
  std::sort(entries.begin(), entries.end(), [](auto const& a, auto const& b) { return a.name < b.name; });
  for (auto const& entry : entries) {
    fmt::print("  {:<20}{}\n{:22}", entry.name, entry.what, "");
    for (auto const& [name, value] : entry.sizes) fmt::print("{} {} ", flag_of(name), value);
    fmt::print("\n");
  }
  return success;
}

}  // namespace bench
