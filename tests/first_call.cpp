// SPDX-License-Identifier: Apache-2.0
// CASES P43: processes whose first call of the library is recorded, not run, one for each row operator. They run this
// program again, for the tests of one file, with the operator's name in the environment.
#include <kfuse/core/ledger.hpp>
#include <kfuse/core/replay.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "row_operators.hpp"
#include "temporary_folder.hpp"

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

// What a process leaves that runs one file of these tests, with `name` in the environment.
struct Ended {
  int status;
  std::string errors;
};
Ended process(std::string const& file, std::string const& name) {
  TemporaryFolder const folder;
  auto const program = std::filesystem::read_symlink("/proc/self/exe").string(),
             errors = folder.path("errors").string();
  std::string const command = std::string(variable) + "='" + name + "' '" + program +
                              "' --no-intro --minimal --source-file='*/" + file + ".cpp' 2> '" + errors + "'";
  int const status = std::system(command.c_str());
  return {status, text_of(errors)};
}
// Kokkos may have a word to say where it begins.
std::string errors_without_calls() {
  return process("first_call", "").errors;
}

}  // namespace

// CASES P49, too: the process ends in silence. Kokkos would complain of Views that outlive it.
TEST_CASE("each row operator may be recorded as the first call of a process") {
  char const* const chosen = std::getenv(variable);
  if (chosen != nullptr && std::string(chosen).empty()) return;  // the process of no operator
  std::string const silence = chosen == nullptr ? errors_without_calls() : "";
  int known = 0;
  for (auto const& run : row_operators<AllBf16>()) {
    CAPTURE(run.name);
    if (chosen == nullptr) {
      auto const [status, errors] = process("first_call", run.name);
      CHECK(status == 0);
      CHECK(errors == silence);
    }
    if (chosen != nullptr && run.name != chosen) continue;
    ++known;
    if (chosen != nullptr) check_first_call(run);
  }
  CHECK(known > 0);
}

// CASES P49: labels.cpp calls all operators that are not row operators.
TEST_CASE("a process that calls the other operators ends in silence") {
  if (std::getenv(variable) != nullptr) return;
  auto const [status, errors] = process("labels", "");
  CHECK(status == 0);
  CHECK(errors == errors_without_calls());
}
