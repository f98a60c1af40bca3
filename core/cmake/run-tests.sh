#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run-tests.sh BUILD [CTEST ARGUMENTS]: runs the tests of a build folder. The last line, `N passed, N failed`, counts
# doctest's test cases and, one each, the CTest entries that are not doctest's. A crash counts as one failure.
set -euo pipefail

folder=$1; shift
status=0
output=$folder/Testing/output.log
mkdir -p "${output%/*}"
ctest --test-dir "$folder" --output-on-failure -j "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" "$@" | tee "$output" ||
  status=$?
skipped=$(grep -c '\*\*\*Skipped' "$output") || true
log=$folder/Testing/Temporary/LastTest.log

read -r passed failed < <(awk '
  /^\[doctest\] test cases:/ {cases = $6; wrong = $9; counted = 1}
  /^Test (Passed|Failed|Skipped)\.|^Test .*(timed out|Not Run|Exception)/ {
    good = /Passed/
    if (!counted) {cases = good; wrong = 0}
    if (!good && !wrong) wrong = 1
    passed += cases; failed += wrong
    counted = cases = wrong = 0
  }
  END {print passed + 0, failed + 0}' "$log")
passed=$((passed - skipped))  # the log calls these passed
if [ "$skipped" != 0 ]; then
  echo "$skipped skipped:"
  grep '^skipped: ' "$log" || true
fi
if [ "$status" != 0 ] && [ "$failed" = 0 ]; then failed=1; fi
if [ "$passed" = 0 ] && [ "$failed" = 0 ]; then echo "no test ran" >&2; status=1; fi
echo "$passed passed, $failed failed"
exit "$status"
