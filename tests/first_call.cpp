// SPDX-License-Identifier: Apache-2.0
// CASES P43: processes whose first call of the library is recorded, not run, one for each row operator. They run this
// program again, for this test alone, with the operator's name in the environment.
#include <kfuse/core/ledger.hpp>
#include <kfuse/core/replay.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "row_operators.hpp"

namespace {

using namespace kfuse::test;

constexpr bool has_graphs = !kfuse::impl::Backend<Space>::is_host;
constexpr char const* variable = "KFUSE_FIRST_CALL";

template <class T>
void check_first_call(RowOperator<T> const& run) {
  kfuse::Replay<Space> replay;
  Arguments<T> a(replay.space(), {0, 5, 1000}, Guarded());
  {  // makes the arguments, and launches nothing
    kfuse::Ledger const ledger(kfuse::Ledger::Execution::none);
    run(a);
  }
  CHECK(replay.record_only([&](Space const&) { run(a); }) == has_graphs);
  CHECK(replay.reason().empty() == has_graphs);
  replay.run(replay.space());
  replay.space().fence("kfuse::test: the replay is done");
  auto const replayed = a.results();
  Arguments<T> eager(Space(), {0, 5, 1000}, Guarded());
  run(eager);
  CHECK(replayed == eager.results());
}

// A process that does this for one operator; its exit status.
int status_of_process(std::string const& name) {
  auto const program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string const command =
      std::string(variable) + "='" + name + "' '" + program + "' --no-intro --minimal --source-file='*first_call.cpp'";
  return std::system(command.c_str());
}

}  // namespace

TEST_CASE("each row operator may be recorded as the first call of a process") {
  char const* const chosen = std::getenv(variable);
  int known = 0;
  for (auto const& run : row_operators<AllBf16>()) {
    CAPTURE(run.name);
    if (chosen == nullptr) CHECK(status_of_process(run.name) == 0);
    if (chosen != nullptr && run.name != chosen) continue;
    ++known;
    if (chosen != nullptr) check_first_call(run);
  }
  CHECK(known > 0);
}
