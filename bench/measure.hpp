// SPDX-License-Identifier: Apache-2.0
// Checks the modes of a case, and times those that are right.
//
// A repetition empties the cache by reading, and then measures between two marks on the stream from just before the
// first launch of the mode to after its last. Repetitions are given to the device without waiting between them, as work
// comes in practice. The modes take turns, a fifth of their repetitions each time: clocks drift with the temperature,
// and shall do so for all of them. The copy that a mode is held against is measured in the same way.
#ifndef KFUSE_BENCH_MEASURE_HPP
#define KFUSE_BENCH_MEASURE_HPP

#include <kfuse/core/device.hpp>
#include <kfuse/core/replay.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "check.hpp"
#include "prepare.hpp"
#include "progress.hpp"
#include "report.hpp"

namespace bench {

// Cold: the cache is emptied before each repetition. Back to back: repetitions follow each other, and what they leave
// in the cache is there.
enum class Cadence { cold, back_to_back };

struct MeasureOptions {
  std::vector<std::string> modes;
  bool modes_given = false;  // then each of them must exist
  int repeats = 0;           // 0: fifty, or fewer, where that took longer than two seconds
  Cadence cadence = Cadence::cold;
  bool check = true;
  std::string spoiled;  // a mode whose result is to be wrong, to see that this is noticed
};

constexpr int turns = 5;

// Seconds of the repetitions of one turn.
template <class Space, class F>
std::vector<double> time(Prepared<Space>& prepared, MeasureOptions const& options, int turn, F const& work) {
  using Timer = kfuse::Timer<Space>;
  auto const once = [&](Timer& timer) {
    prepared.restore();
    if (options.cadence == Cadence::cold) prepared.flush();
    timer.start(prepared.space);
    work();
    timer.stop(prepared.space);
  };
  double seconds = 0;  // that a repetition takes, with all that belongs to it
  for (int warm_up = 0; warm_up < 3 && seconds < 1; ++warm_up) {
    Kokkos::Timer clock;
    Timer timer;
    once(timer);
    timer.seconds();
    seconds = clock.seconds();
  }
  int const affordable = std::clamp(int(std::min(2 / std::max(seconds, 1e-9), 50.0)), 5, 50);
  int const repeats = options.repeats > 0 ? options.repeats : affordable;
  std::vector<Timer> timers(std::size_t(repeats / turns + (turn < repeats % turns ? 1 : 0)));
  for (Timer& timer : timers) once(timer);
  std::vector<double> all;
  for (Timer const& timer : timers) all.push_back(timer.seconds());
  return all;
}
template <class T>
void append(std::vector<T>& to, std::vector<T> const& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// The modes of one case: how to run each.
template <class Space>
class Measurement {
 public:
  Measurement(Space const& space, Job<Space> const& job, MeasureOptions const& options, Progress const& progress)
      : job_(job), options_(options), progress_(progress), prepared_(space, job) {}

  std::vector<Run> runs() {
    std::vector<Run> runs;
    for (auto const& mode : options_.modes) {
      bool const absent = mode == "eager" && !prepared_.work.eager;
      if (absent && options_.modes_given)
        throw UsageError("--modes: " + job_.work + " has no eager form; leave eager out");
      if (absent) continue;
      runs.push_back(described(mode));
    }
    for (Run& run : runs) {
      if (run.mode == "replay") record(run);
      progress_.say("checking " + run.work + ", " + run.mode);
      if (options_.check) check(run);
    }
    bool right = true;
    for (Run const& run : runs) right = right && run.error.empty();
    if (right) measure(runs);
    return runs;
  }

 private:
  Run described(std::string const& mode) const {
    Cost const& cost = cost_of(mode);
    int const layers = prepared_.work.layers;
    return {.work = job_.work,
            .mode = mode,
            .element = kfuse::name(job_.element),
            .shape = job_.shape,
            .launches = cost.launches / layers,
            .bytes = cost.traffic.bytes() / layers,
            .flops = cost.traffic.flops / layers,
            .seconds = {},
            .fraction_of_copy = {},
            .fraction_of_read = {},
            .max_deviation = {},
            .reference = {},
            .note = prepared_.work.path,
            .error = {},
            .bar = {},
            .bar_of = {},
            .verdict = {}};
  }

  void record(Run& run) {
    replay_.record([this](Space const& on) { prepared_.run(on, prepared_.work.fused); });
    if (!replay_.recorded()) run.note += (run.note.empty() ? "" : "; ") + ("called, not replayed: " + replay_.reason());
  }
  void start(std::string const& mode) {
    if (mode == "replay") return replay_.run(prepared_.space);
    prepared_.run(prepared_.space, mode == "eager" ? prepared_.work.eager : prepared_.work.fused);
  }

  // Fills run.max_deviation and run.reference, and run.error if the result is wrong.
  void check(Run& run) {
    auto const& outputs = prepared_.work.outputs;
    if (expected_.empty())
      for (auto const& output : outputs) expected_.push_back(expected_rows(output));
    auto const results = results_of(run.mode);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      auto const& output = outputs[i];
      if (output.reference) judge(run, "fp64", against_reference(output, results[i], expected_[i]), output.allowed);
      if (run.mode == "replay" && !fused_.empty() && results[i] != fused_[i] && run.error.empty())
        run.error = output.name + " has other bits replayed than called; " +
                    against_each_other(output, results[i], fused_[i]).where;
      if (!first_.empty())
        judge(run, output.reference ? "" : first_mode_, against_each_other(output, results[i], first_[i]),
              2 * output.allowed);
    }
    if (!run.error.empty()) return;
    if (run.mode == "fused") fused_ = results;
    if (first_.empty()) {
      first_ = results;
      first_mode_ = run.mode;
    }
  }
  std::vector<Snapshot> results_of(std::string const& mode) {
    auto const& outputs = prepared_.work.outputs;
    for (auto const& output : outputs) spoil<Space>(output, bytes_of(output));
    prepared_.restore();
    start(mode);
    prepared_.space.fence("kfuse::bench: the result is there");
    if (mode == options_.spoiled) spoil<Space>(outputs.at(0), element_bytes(outputs.at(0).type));
    std::vector<Snapshot> results;
    for (auto const& output : outputs) results.push_back(snapshot<Space>(output));
    return results;
  }
  // `reference` is what the deviation is reported from; empty: it only has to be allowed.
  static void judge(Run& run, std::string const& reference, Deviation const& deviation, double allowed) {
    if (!reference.empty()) {
      run.reference = reference;
      if (!run.max_deviation || !(deviation.largest <= *run.max_deviation)) run.max_deviation = deviation.largest;
    }
    if (!deviation.within(allowed) && run.error.empty())
      run.error = fmt::format("{} (a relative deviation of {:.2g}; {:.2g} is allowed)", deviation.where,
                              deviation.largest, allowed);
  }

  // The yardsticks take turns with the modes that are held against them.
  void measure(std::vector<Run>& runs) {
    std::vector<std::vector<double>> all(runs.size());
    std::map<std::size_t, std::vector<double>> copies, reads;  // by their bytes
    for (Run const& run : runs) {
      copies[bytes_of_call(run)];
      if (cost_of(run.mode).only_reads()) reads[bytes_of_call(run)];
    }
    for (int turn = 0; turn < turns; ++turn) {
      for (std::size_t i = 0; i < runs.size(); ++i) {
        progress_.say("timing " + runs[i].work + ", " + runs[i].mode);
        append(all[i], time(prepared_, options_, turn, [&] { start(runs[i].mode); }));
      }
      for (auto& [bytes, times] : copies)
        if (bytes >= 2) append(times, time(prepared_, options_, turn, [&] { prepared_.copy(bytes); }));
      for (auto& [bytes, times] : reads)
        if (bytes >= 2) append(times, time(prepared_, options_, turn, [&] { prepared_.read(bytes); }));
    }
    for (std::size_t i = 0; i < runs.size(); ++i)
      conclude(runs[i], all[i], summary(copies[bytes_of_call(runs[i])]), summary(reads[bytes_of_call(runs[i])]));
  }
  void conclude(Run& run, std::vector<double> const& times, std::optional<Seconds> copy,
                std::optional<Seconds> read) const {
    double const layers = prepared_.work.layers;
    auto const seconds = summary(times);
    if (!seconds) return;
    run.seconds = Seconds{seconds->median / layers, seconds->p10 / layers, seconds->p90 / layers};
    if (copy) run.fraction_of_copy = copy->median / seconds->median;
    if (read) run.fraction_of_read = read->median / seconds->median;
    if (job_.bar && options_.cadence == Cadence::cold) hold_against(*job_.bar, run);
  }
  Cost const& cost_of(std::string const& mode) const { return mode == "eager" ? prepared_.eager() : prepared_.fused(); }
  std::size_t bytes_of_call(Run const& run) const { return run.bytes * std::size_t(prepared_.work.layers); }

  Job<Space> const& job_;
  MeasureOptions const& options_;
  Progress const& progress_;
  Prepared<Space> prepared_;
  kfuse::Replay<Space> replay_;
  std::vector<Expected> expected_;
  std::vector<Snapshot> fused_, first_;
  std::string first_mode_;
};

}  // namespace bench

#endif
