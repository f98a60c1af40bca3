#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compile.sh FOLDER [TARGET]: builds a target of this project (CMakeLists.txt) in FOLDER. Exits with 77, which CTest
# takes for "skipped", if the compilers cannot be brought here; the reason is printed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=$1 target=${2:-device_code}

rm -f "$folder/compiled"  # nobody shall read what an earlier call has left
if ! "$root/core/cmake/setup.sh" device-code; then
  echo "skipped: the compilers for both GPU vendors could not be brought (above)"
  exit 77
fi
cmake -S "$here" -B "$folder" -Dkfuse_DEVICE_TOOLS="$root/build/deps/device-code.json" >/dev/null
cmake --build "$folder" --target "$target" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
touch "$folder/compiled"
