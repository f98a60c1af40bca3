// SPDX-License-Identifier: Apache-2.0
// The Ledger: what operators say they launch, and running none of it.
#include <kfuse/core/fuse.hpp>
#include <kfuse/core/ledger.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>
#include <kfuse/fused/stage/load_store.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "support.hpp"

namespace {

using namespace kfuse::test;
using kfuse::Ledger, kfuse::Traffic;

constexpr int rows = 3, columns = 40;

struct Scaling {
  decltype(view_of_nans<float>(1, 1)) x = view_of<float>(std::vector<double>(rows * columns, 3), rows, columns);
  decltype(view_of_nans<float>(1, 1)) y = view_of_nans<float>(rows, columns);

  void run(std::string const& label) const {
    kfuse::fuse(Space(), label, kfuse::load(x) | kfuse::scale(2) | kfuse::store(y));
  }
  bool ran() const { return download(y) == std::vector<double>(rows * columns, 6); }
  bool untouched() const { return std::isnan(download(y)[0]) && std::isnan(download(y).back()); }
};

constexpr Traffic one_run{rows * columns * 4, rows* columns * 4, rows* columns};

}  // namespace

TEST_CASE("a ledger holds a line for each operator called while it lives, in order, and they run as usual") {
  Scaling const work;
  work.run("test::before");
  Ledger ledger;
  CHECK(ledger.entries().empty());
  CHECK(ledger.launches() == 0);
  CHECK(ledger.traffic() == Traffic{});

  work.run("test::first");
  work.run("test::second");
  REQUIRE(ledger.entries().size() == 2);
  CHECK(ledger.entries()[0].label == "test::first");
  CHECK(ledger.entries()[1].label == "test::second");
  CHECK(ledger.entries()[0].launches == 1);
  CHECK(ledger.entries()[0].traffic == one_run);
  CHECK(ledger.launches() == 2);
  CHECK(ledger.traffic() == one_run + one_run);
  CHECK(work.ran());
}

TEST_CASE("without a ledger nothing is held and everything runs") {
  CHECK(!Ledger::is_active());
  CHECK(Ledger::executes());
  CHECK(Ledger::state("test::nobody", 1, {}));
  Scaling const work;
  work.run("test::alone");
  CHECK(work.ran());
}

TEST_CASE("Execution::none launches nothing and writes the same lines") {
  Scaling const work;
  {
    Ledger const ledger(Ledger::Execution::none);
    CHECK(Ledger::is_active());
    CHECK(!Ledger::executes());
    work.run("test::counted");
    CHECK(ledger.launches() == 1);
    CHECK(ledger.traffic() == one_run);
  }
  CHECK(work.untouched());
  work.run("test::afterwards");
  CHECK(work.ran());
}

TEST_CASE("Execution::none still refuses wrong arguments, and then writes no line") {
  Scaling const work;
  auto const wrong = view_of_nans<float>(rows, columns + 1);
  Ledger const ledger(Ledger::Execution::none);
  auto const message =
      error_of([&] { kfuse::fuse(Space(), "user::scale", kfuse::load(work.x) | kfuse::store(wrong)); });
  CHECK(contains(message, "user::scale: store"));
  CHECK(ledger.entries().empty());
}

TEST_CASE("an operator with nothing to do writes no line") {
  auto const nothing = view_of<float>({}, 0, columns);
  Ledger const ledger;
  kfuse::fuse(Space(), "test::empty", kfuse::load(nothing) | kfuse::store(nothing));
  CHECK(ledger.launches() == 0);
}

TEST_CASE("of nested ledgers the innermost is written to, and none means none") {
  Scaling const work;
  Ledger const outer;
  work.run("test::outside");
  {
    Ledger const inner(Ledger::Execution::none);
    work.run("test::inside");
    {
      Ledger const innermost(Ledger::Execution::as_usual);
      work.run("test::innermost");
      CHECK(innermost.launches() == 1);
      CHECK(!Ledger::executes());
    }
    CHECK(inner.launches() == 1);
  }
  CHECK(Ledger::executes());
  work.run("test::outside again");
  REQUIRE(outer.entries().size() == 2);
  CHECK(outer.entries()[1].label == "test::outside again");
}

TEST_CASE("what is nested in Execution::none launches nothing") {
  Scaling const work;
  {
    Ledger const outer(Ledger::Execution::none);
    Ledger const inner;
    work.run("test::inside");
  }
  CHECK(work.untouched());
}

TEST_CASE("a ledger belongs to its thread") {
  Ledger const ledger(Ledger::Execution::none);
  bool other_runs = false;
  std::thread([&] { other_runs = !Ledger::is_active() && Ledger::state("test::elsewhere", 1, {}); }).join();
  CHECK(other_runs);
  CHECK(ledger.entries().empty());
}
