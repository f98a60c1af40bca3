// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <utility>

#include "calls.hpp"
#include "explain.hpp"
#include "overview.hpp"
#include "roofline.hpp"
#include "session.hpp"
#include <fmt/chrono.h>
#include <fmt/format.h>

namespace bench {

namespace {

template <class Space>
using Jobs = std::function<std::vector<Job<Space>>()>;

template <class Space>
Job<Space> op_job(OpRequest const& request, kfuse::ElementType type) {
  auto const make = [=](Memory<Space>& memory) {
    return several_calls<Space>(request.calls, [&] { return request.entry.make(memory, type, request.sizes); });
  };
  std::vector<std::pair<std::string, int>> shape(request.sizes.begin(), request.sizes.end());
  if (request.calls > 1) shape.emplace_back("calls", request.calls);
  return {"op/" + request.entry.name, type, shape, make, request.bar};
}

// What the command line asks for, read before Kokkos starts; f is called with a list of jobs for the space asked for.
template <class F>
int with_jobs(Options const& options, F const& f) {
  auto const type = element_asked(options);
  auto const ops = ops_asked(options);
  auto const layer = ops.empty() ? std::optional(layer_asked(options)) : std::nullopt;
  return in_session(options.space, [&]<class Space>(Space const& space) {
    std::vector<Job<Space>> jobs;
    for (auto const& request : ops) jobs.push_back(op_job<Space>(request, type));
    if (layer) jobs.push_back(layer_job<Space>(*layer, type));
    return f(space, jobs);
  });
}

std::string device_text(Report const& report) {
  return fmt::format("{} ({}; {}), {}\n", report.device, report.space, report.software,
                     report.copy_bytes_per_second ? "copies " + rate_text(*report.copy_bytes_per_second, "B/s")
                                                  : "speed of a copy unknown");
}

// Prints what is wrong. Returns whether nothing is.
bool print_errors(std::vector<Run> const& runs) {
  bool right = true;
  for (Run const& run : runs) {
    if (run.error.empty()) continue;
    fmt::print(stderr, "kfuse-bench: {}, {}: wrong result: {}\n", run.work, run.mode, run.error);
    right = false;
  }
  return right;
}

// One piece of work: a table of its runs, and what there is to say about them.
std::string text(std::vector<Run> const& runs) {
  Run const& first = runs.front();
  std::string result = fmt::format("\n{}, {}: {}\n{}", first.work, first.element, shape_text(first.shape), table(runs));
  if (!first.note.empty()) result += first.note + "\n";
  for (Run const& run : runs) {
    if (run.mode == "replay" && run.note != first.note) result += fmt::format("replay: {}\n", run.note);
    if (run.seconds && run.fraction_of_copy.value_or(0) > 1.1 && !run.fraction_of_read)
      result += fmt::format("{} is faster than a copy of as many bytes: part of its data stays in a cache\n", run.mode);
    if (run.fraction_of_read)
      result += fmt::format("{} only reads: {:.3f} of a read\n", run.mode, *run.fraction_of_read);
    if (!run.verdict.empty()) result += fmt::format("{}: the bar of {} is {}\n", run.mode, bar_text(run), run.verdict);
  }
  std::string const summary = verdict(runs);
  return result + (summary.empty() ? "" : summary + "\n");
}

template <class Space>
Report empty_report(Space const& space, MeasureOptions const& how) {
  auto const facts = kfuse::device_facts(space);
  return {.version = KFUSE_VERSION,
          .date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
          .cadence = how.cadence == Cadence::cold ? "cold" : "back-to-back",
          .device = facts.name,
          .space = facts.space,
          .software = facts.versions,
          .copy_bytes_per_second = copy_speed(space),
          .runs = {}};
}

// "rmsnorm: rows 16384, columns 4096"
template <class Space>
std::string work_text(Job<Space> const& job) {
  return job.work.substr(job.work.find('/') + 1) + ": " + shape_text(job.shape);
}

// Measures everything and prints it as it comes: a table each, or all in one. Returns whether all of it is right.
template <class Space>
bool measure(Space const& space, std::vector<Job<Space>> const& jobs, MeasureOptions const& how, bool in_one_table,
             Progress const& progress, Report& report) {
  std::vector<std::string> works;
  for (auto const& job : jobs) works.push_back(work_text(job));
  Overview const overview(works);
  std::string head;  // printed when there is something below it
  if (in_one_table)
    head = fmt::format("\n{}, {}\n{}", kfuse::name(jobs.front().element), report.cadence, overview.head());
  bool right = true;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    progress.say("preparing " + jobs[i].work);
    std::vector<Run> runs;
    std::string line;
    try {
      runs = Measurement<Space>(space, jobs[i], how, progress).runs();
      line = overview.line(works[i], runs);
    } catch (MemoryError const& problem) {
      if (!in_one_table) throw;
      report.skipped.push_back({jobs[i].work, jobs[i].shape, problem.what()});
      line = overview.skipped(works[i], problem.what());
    }
    progress.say("");
    if (i == 0) fmt::print("{}{}", device_text(report), head);
    fmt::print("{}", in_one_table ? line : text(runs));
    std::fflush(stdout);
    right = print_errors(runs) && right;
    report.runs.insert(report.runs.end(), runs.begin(), runs.end());
  }
  return right;
}

int measure(Options const& options) {
  MeasureOptions const how = measure_asked(options);
  std::unique_ptr<NewFile> file;
  if (options.json) file = std::make_unique<NewFile>(*options.json);
  return with_jobs(options, [&]<class Space>(Space const& space, std::vector<Job<Space>> const& jobs) {
    Progress const progress;
    progress.say("measuring the speed of a copy");
    Report report = empty_report(space, how);
    bool const right = measure(space, jobs, how, options.all, progress, report);
    if (file) file->write(to_json(report));
    return right ? success : wrong_result;
  });
}

}  // namespace

int layer(Options const& options) {
  return measure(options);
}
int op(Options const& options) {
  if (options.ops.empty() && !options.all)
    throw UsageError("op: name one or more operators, or ask for --all; kfuse-bench list has their names");
  return measure(options);
}

int explain(Options options) {
  options.calls = "1";  // more calls launch more of the same
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
  std::size_t width = 0;
  for (auto const& entry : entries) width = std::max(width, entry.name.size() + 2);
  for (auto const& entry : entries) {
    fmt::print("  {:<{}}{}\n{:{}}", entry.name, width, entry.what, "", width + 2);
    for (auto const& [name, value] : entry.sizes) fmt::print("{} {} ", flag_of(name), value);
    fmt::print("\n");
  }
  return success;
}

}  // namespace bench
