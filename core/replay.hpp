// SPDX-License-Identifier: Apache-2.0
// Work recorded once and replayed in one launch.
//
//   kfuse::Replay<Space> replay;                              // once: it makes a stream
//   replay.record([=](Space const& s) { layer(s, ...); });
//   for (...) replay.run(space);
//
// A graph holds addresses, shapes and numbers as they were. What shall change between replays (values, lengths,
// positions, seeds) lies in memory that the work reads. All of this belongs to one thread, and must be gone before
// Kokkos is finalized, as Views must.
#ifndef KFUSE_CORE_REPLAY_HPP
#define KFUSE_CORE_REPLAY_HPP

#include <kfuse/backends/backend.hpp>
#include <kfuse/core/check.hpp>
#include <kfuse/core/ledger.hpp>
#include <kfuse/core/replay_key.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kfuse {

template <class Space>
class Replay {
 public:
  using Recorder = typename impl::Backend<Space>::template Recorder<Space>;

  Replay() : Replay(std::make_shared<Recorder>()) {}
  // Records on a stream that others record on as well.
  explicit Replay(std::shared_ptr<Recorder> recorder) : recorder_(std::move(recorder)) {}

  // Runs work(space()) once, so that what is made at first use is made, and then records it. The work puts all it does
  // on the instance it is given, and neither waits nor allocates; a copy of it is kept. Waits for the device before and
  // after that run: the work sees what was written on any stream, and any stream sees what it wrote. Returns whether
  // there is a graph now; if not, reason() says why, and run() calls the work. Throws what the work throws in that run,
  // and, from the recording, kfuse::Error only; then nothing is recorded.
  template <class Work>
  bool record(Work work) {
    keep(std::move(work));
    try {
      Kokkos::fence("kfuse::Replay::record: what the work reads is written");
      Ledger ledger;
      work_(space());
      lines_ = ledger.entries();
      space().fence("kfuse::Replay::record: the first run is done");
    } catch (...) {
      forget();
      throw;
    }
    return capture();
  }

  // The same without that run, for work that has run before: it does not take effect now, and no stream is waited for.
  template <class Work>
  bool record_only(Work work) {
    keep(std::move(work));
    return capture();
  }

  // Replays on the stream of `given`, or calls the work with `given` if there is no graph. Returns before it is done.
  void run(Space const& given) const {
    impl::check(work_ != nullptr, "replay", "nothing is recorded; call record(work) first");
    if (!graph_) return work_(given);
    if (Ledger::is_active())
      for (auto const& line : lines_) Ledger::state(line.label, line.launches, line.traffic);
    if (Ledger::executes()) graph_->launch(given);
  }

  bool recorded() const { return graph_.has_value(); }
  std::string const& reason() const { return reason_; }
  // The kernels of the graph. Without one, those that the operators in the work say they launch.
  int launches() const { return graph_ ? graph_->kernels() : stated(lines_); }
  // Device memory that the graph takes, as far as the driver tells.
  std::size_t memory_bytes() const { return graph_ ? graph_->bytes() : 0; }
  // The instance that work is recorded on.
  Space const& space() const { return recorder_->space(); }

 private:
  using Graph = typename impl::Backend<Space>::Graph;

  template <class Work>
  void keep(Work&& work) {
    impl::check(Ledger::executes(), "replay",
                "nothing can be recorded while a Ledger lets nothing be launched; end that Ledger first");
    forget();
    work_ = std::forward<Work>(work);
  }
  void forget() {
    graph_.reset();
    work_ = nullptr;
    lines_.clear();
    reason_ = "nothing is recorded";
  }

  bool capture() {
    try {
      Ledger ledger;
      Graph graph = recorder_->record(work_);
      lines_ = ledger.entries();
      if (graph.nodes() < stated(lines_))
        throw std::runtime_error("the work put " + std::to_string(graph.nodes()) + " launches on its space, but its " +
                                 "operators state " + std::to_string(stated(lines_)) +
                                 "; let it use the space it is given for all of them");
      graph_ = std::move(graph);
      reason_.clear();
    } catch (Error const&) {
      forget();
      throw;
    } catch (std::exception const& problem) {
      reason_ = problem.what();
    } catch (...) {
      reason_ = "the work threw something that is not a std::exception";
    }
    return recorded();
  }
  static int stated(std::vector<LedgerEntry> const& lines) {
    int sum = 0;
    for (auto const& line : lines) sum += line.launches;
    return sum;
  }

  std::shared_ptr<Recorder> recorder_;
  std::function<void(Space const&)> work_;
  std::optional<Graph> graph_;
  std::vector<LedgerEntry> lines_;
  std::string reason_ = "nothing is recorded";
};

// A graph for each key: work runs eagerly when its key is seen first, is recorded when it is seen again, and replayed
// from then on. The key names everything that a recording holds (replay_key(...) takes Views and numbers): equal keys
// mean the same work. Its graphs share one stream to record on and replay on one space at a time.
template <class Space, class Key = ReplayKey>
class ReplayCache {
 public:
  // Of more than `most` graphs, and of more than `most` keys seen once, the least recently used is dropped.
  explicit ReplayCache(std::size_t most = 32) : most_(most) {
    impl::check(most > 0, "replay_cache",
                "holds no graph (each run would be recorded and forgotten); give it one at least");
  }

  // Runs the work once, one way or another, on the stream of `space`. If it cannot be recorded it is called, each time.
  template <class Work>
  void run(Space const& space, Key const& key, Work const& work) {
    auto const found = entries_.find(key);
    if (!Ledger::executes()) return work(space);
    if (found == entries_.end()) {
      work(space);
      make_room(false);
      entries_.emplace(key, Entry{++clock_, std::nullopt});
      return;
    }
    Entry& entry = found->second;
    if (!entry.replay) {
      Replay<Space> replay(recorder());
      replay.record_only(work);
      make_room(true);
      entry.replay = std::move(replay);
    }
    entry.last_use = ++clock_;
    entry.replay->run(space);
  }

  // How many works are kept, as graphs wherever that could be done.
  std::size_t size() const { return count(true); }
  std::size_t memory_bytes() const {
    std::size_t sum = 0;
    for (auto const& [key, entry] : entries_)
      if (entry.replay) sum += entry.replay->memory_bytes();
    return sum;
  }
  bool recorded(Key const& key) const {
    auto const found = entries_.find(key);
    return found != entries_.end() && found->second.replay && found->second.replay->recorded();
  }
  // Why there is no graph for this key; empty if there is one.
  std::string reason(Key const& key) const {
    auto const found = entries_.find(key);
    if (found == entries_.end()) return "this key has not been seen, or not for long";
    return found->second.replay ? found->second.replay->reason() : "this key has been seen once";
  }
  void clear() { entries_.clear(); }

 private:
  struct Entry {
    std::uint64_t last_use;
    std::optional<Replay<Space>> replay;
  };

  auto const& recorder() {
    if (!recorder_) recorder_ = std::make_shared<typename Replay<Space>::Recorder>();
    return recorder_;
  }
  std::size_t count(bool kept) const {
    std::size_t n = 0;
    for (auto const& [key, entry] : entries_) n += entry.replay.has_value() == kept;
    return n;
  }
  // For one more of its kind.
  void make_room(bool kept) {
    if (count(kept) < most_) return;
    auto oldest = entries_.end();
    for (auto i = entries_.begin(); i != entries_.end(); ++i)
      if (i->second.replay.has_value() == kept &&
          (oldest == entries_.end() || i->second.last_use < oldest->second.last_use))
        oldest = i;
    entries_.erase(oldest);
  }

  std::size_t most_;
  std::uint64_t clock_ = 0;
  std::shared_ptr<typename Replay<Space>::Recorder> recorder_;
  std::map<Key, Entry> entries_;
};

}  // namespace kfuse

#endif
