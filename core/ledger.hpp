// SPDX-License-Identifier: Apache-2.0
// What the operators called meanwhile have launched, in their own words: label, launches, traffic.
#ifndef KFUSE_CORE_LEDGER_HPP
#define KFUSE_CORE_LEDGER_HPP

#include <kfuse/core/traffic.hpp>

#include <string>
#include <utility>
#include <vector>

namespace kfuse {

struct LedgerEntry {
  std::string label;
  int launches = 1;
  Traffic traffic;
};

// While a Ledger lives, every operator called on its thread writes a line to it; of nested ones, to the innermost. With
// Execution::none, of it or of one around it, operators check their arguments and write their line, and launch nothing:
// what a layer costs can be known without running it.
class Ledger {
 public:
  enum class Execution { as_usual, none };

  explicit Ledger(Execution execution = Execution::as_usual)
      : execution_(execution), outer_(std::exchange(active(), this)) {
    if (outer_ != nullptr && outer_->execution_ == Execution::none) execution_ = Execution::none;
  }
  ~Ledger() { active() = outer_; }
  Ledger(Ledger const&) = delete;
  Ledger& operator=(Ledger const&) = delete;

  std::vector<LedgerEntry> const& entries() const { return entries_; }
  Traffic traffic() const {
    Traffic sum;
    for (auto const& e : entries_) sum += e.traffic;
    return sum;
  }
  int launches() const {
    int sum = 0;
    for (auto const& e : entries_) sum += e.launches;
    return sum;
  }

  // For operators: states what is about to be launched. Returns false if nothing shall be.
  static bool state(std::string const& label, int launches, Traffic const& traffic) {
    Ledger* const ledger = active();
    if (ledger == nullptr) return true;
    ledger->entries_.push_back({label, launches, traffic});
    return ledger->execution_ == Execution::as_usual;
  }
  static bool is_active() { return active() != nullptr; }
  // Do operators launch what they state?
  static bool executes() { return active() == nullptr || active()->execution_ == Execution::as_usual; }

 private:
  static Ledger*& active() {
    thread_local Ledger* ledger = nullptr;
    return ledger;
  }

  Execution execution_;
  Ledger* outer_;
  std::vector<LedgerEntry> entries_;
};

}  // namespace kfuse

#endif
