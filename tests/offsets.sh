#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# offsets.sh BUILD SOURCE: no product of ints becomes an offset or a size (past 2^31 elements it would have overflowed).
# The layers use nearly all operators as the host compiles them, tests on lanes those that they do not use. A planted
# product must be found first, so that the check is known to look.
set -euo pipefail
build=$1 source=$2
tidy=$("$source/core/cmake/setup.sh" clang-tidy) || exit 77  # there is none, and none comes

look() {  # look FILE: clang-tidy's findings in kfuse and FILE
  "$tidy" -p "$build" --quiet --checks=-*,bugprone-implicit-widening-of-multiplication-result \
    --header-filter='/(core|fused|models|backends)/' --extra-arg=-Wno-unknown-warning-option "$@" 2>/dev/null
}

planted=$(mktemp -d)
trap 'rm -rf "$planted"' EXIT
echo 'float at(float const* x, int row, int columns) { return x[row * columns]; }' > "$planted/planted.cpp"
found=$(look "$planted/planted.cpp" --) || true
if [[ $found != *widening* ]]; then
  echo "the check does not find a planted product"
  exit 1
fi

for file in "$source"/models/{fused,eager}_layer.cpp "$source"/tests/{operator_lanes,fuse_linear_lanes}.cpp; do
  found=$(look "$file") || { echo "$found"; exit 1; }
  if grep -E 'warning|error' <<< "$found"; then exit 1; fi
done
echo "no product of ints becomes an offset"
