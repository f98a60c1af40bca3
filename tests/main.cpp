// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace {

// Cases that ran: a test that finds none of its cases has found nothing, and must not pass.
unsigned executed = 0;

struct CountCases : doctest::IReporter {
  explicit CountCases(doctest::ContextOptions const&) {}
  void report_query(doctest::QueryData const&) override {}
  void test_run_start() override {}
  void test_run_end(doctest::TestRunStats const&) override {}
  void test_case_start(doctest::TestCaseData const&) override { ++executed; }
  void test_case_reenter(doctest::TestCaseData const&) override {}
  void test_case_end(doctest::CurrentTestCaseStats const&) override {}
  void test_case_exception(doctest::TestCaseException const&) override {}
  void subcase_start(doctest::SubcaseSignature const&) override {}
  void subcase_end() override {}
  void log_assert(doctest::AssertData const&) override {}
  void log_message(doctest::MessageData const&) override {}
  void test_case_skipped(doctest::TestCaseData const&) override {}
};
REGISTER_LISTENER("count_cases", 1, CountCases);

// Listing tests must work where there is no GPU, such as a login node.
bool is_question(std::string_view argument) {
  if (argument.starts_with("--dt-"))
    argument.remove_prefix(5);
  else if (argument.starts_with("-dt-"))
    argument.remove_prefix(4);
  else if (argument.starts_with("--"))
    argument.remove_prefix(2);
  else if (argument.starts_with("-"))
    argument.remove_prefix(1);
  else
    return false;
  constexpr std::string_view questions[] = {"?", "h", "help", "v", "version", "c", "count", "ltc", "lts", "lr"};
  return argument.starts_with("list-") || std::ranges::find(questions, argument) != std::end(questions);
}

}  // namespace

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  if (std::any_of(argv + 1, argv + argc, is_question)) return context.run();

  Kokkos::ScopeGuard kokkos(argc, argv);
  int const status = context.run();
  if (executed > 0 || status != 0) return status;
  std::fputs("no test case ran: is there none in this file, or does a filter exclude them all?\n", stderr);
  return 1;
}
