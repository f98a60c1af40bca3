# SPDX-License-Identifier: Apache-2.0
# Part of setup.sh: brings what compiles for both GPU vendors, and reads their machine code, to a machine that has no
# GPU. build/deps/device-code.json says where everything is and of which version.
#
#   deps/hip/          HIP's headers, its runtime to link against, and the device's library in bitcode
#   deps/cuda/         NVIDIA's compiler and disassembler, from their wheels; where the machine has them: not needed
#   deps/gpu-headers/  the headers that switch a GPU on in the Kokkos of deps/serial and deps/openmp (gpu-headers.py)

# The versions of NVIDIA's wheels. The disassembler has no 13.0, and a newer one reads older code.
cuda_compiler_wheels=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.0.2.14)
cuda_reader_wheels=(nvidia-cuda-cuobjdump==13.2.51 nvidia-cuda-nvdisasm==13.2.51)
device_targets=(sm_80 gfx90a gfx942 gfx1100)  # Kokkos for sm_80 serves newer NVIDIA GPUs, too

bring_device_tools() {
  local file=$deps/device-code.json key
  key=$(cat "$here"/*.sh "$here"/gpu-headers.py | cksum)
  key="${key% *} $(gpu_compiler nvcc || true) $(cuda_reader || true)"
  if grep -qF "\"$key\"" "$file" 2>/dev/null; then return; fi
  if ! has python3; then install_packages python3; fi
  bring_llvm
  read_package_lists || fail "the HIP and Kokkos headers come from Debian's packages, and this is no Debian, or its mirror is not reached"
  bring_build_tools
  bring_tools >/dev/null
  bring_hip
  bring_cuda
  bring_gpu_headers serial
  bring_gpu_headers openmp
  describe_device_tools "$key" > "$file.part"
  mv "$file.part" "$file"
}

bring_llvm() {
  local missing=()
  has clang++-19 || missing+=(clang-19)
  has clang-offload-bundler-19 || missing+=(clang-tools-19)
  has ld.lld-19 || missing+=(lld-19)
  has llvm-readelf-19 || missing+=(llvm-19)
  if [ ${#missing[@]} -gt 0 ]; then install_packages "${missing[@]}"; fi
}

bring_hip() {
  local suite=sid packages device_library=rocm-device-libs-17
  if [ -e "$deps/hip/complete" ]; then return; fi
  packages=({libamdhip64,libhipblaslt,libhipblas-common,librocblas}-dev/$suite)
  packages+=($(depends "${packages[@]}" | grep -oE '^libamdhip64-[0-9]+')/$suite)
  unpack hip "${packages[@]}" $device_library/"$(newest_suite $device_library)"
  touch "$deps/hip/complete"
}

cuda_reader() {  # the path of cuobjdump, where nvdisasm is with it
  local path; path=$(gpu_compiler cuobjdump) || return 1
  if [ -x "${path%/*}/nvdisasm" ]; then echo "$path"; else return 1; fi
}

bring_cuda() {
  local compiler
  if compiler=$(gpu_compiler nvcc) && [[ $("$compiler" --version) == *"release 13"* ]] &&
      [ -e "${compiler%/*}/../include/cublasLt.h" ]; then
    cuda_reader >/dev/null || unpack_wheels reader "${cuda_reader_wheels[@]}"
  else
    unpack_wheels compiler "${cuda_compiler_wheels[@]}" "${cuda_reader_wheels[@]}"
  fi
}

unpack_wheels() {  # unpack_wheels NAME PACKAGE==VERSION...: into deps/cuda
  local name=$1 folder package archive
  shift
  if [ -e "$deps/cuda/$name" ]; then return; fi
  say "fetching $*"
  folder=$(mktemp -d "$deps/wheels.XXXXXX")
  for package; do
    wheel "$folder" "$package" ||
      fail "$package did not come; a CUDA toolkit 13 that is installed, with its programs in PATH, makes it needless"
  done
  for archive in "$folder"/*.whl; do python3 -m zipfile -e "$archive" "$deps/cuda"; done
  chmod +x "$deps"/cuda/nvidia/*/{bin,nvvm/bin}/* 2>/dev/null || true  # an archive does not say which files are programs
  rm -rf "$folder"
  touch "$deps/cuda/$name"
}

cuda_tool() {  # cuda_tool nvcc|cuobjdump: its path; the machine's own before the wheels'
  local own; own=$(echo "$deps"/cuda/nvidia/*/bin)
  if [ "$1" = nvcc ] && [ ! -e "$deps/cuda/compiler" ]; then gpu_compiler nvcc; return; fi
  if [ "$1" = cuobjdump ] && [ ! -d "$own" ]; then cuda_reader; return; fi
  echo "$own/$1"
}

bring_gpu_headers() {  # bring_gpu_headers serial|openmp
  local target
  bring_kokkos "$1" >/dev/null
  for target in "${device_targets[@]}"; do
    "$here/gpu-headers.py" "$deps/$1/usr/include/kokkos" "$target" "$deps/gpu-headers/$1-$target"
  done
}

kokkos_version() {  # kokkos_version serial|openmp
  sed -nE 's/^#define KOKKOS_VERSION_(MAJOR|MINOR|PATCH) //p' "$deps/$1/usr/include/kokkos/KokkosCore_config.h" |
    paste -sd .
}

describe_device_tools() {  # describe_device_tools KEY
  local hip=$deps/hip/usr nvcc llvm
  nvcc=$(cuda_tool nvcc) llvm=$(dirname "$(realpath "$(command -v clang++-19)")")
  cat <<JSON
{
  "key": "$1",
  "nvcc": "$nvcc",
  "cuobjdump": "$(cuda_tool cuobjdump)",
  "clang": "$llvm/clang++",
  "llvm": "$llvm",
  "hip": "$hip",
  "bitcode": "$(find "$hip" -type d -path '*amdgcn/bitcode' | head -n 1)",
  "tools": "$deps/tools/usr/include",
  "gpu_headers": "$deps/gpu-headers",
  "kokkos": {"serial": "$deps/serial/usr/include/kokkos", "openmp": "$deps/openmp/usr/include/kokkos"},
  "versions": {
    "nvcc": "$("$nvcc" --version | sed -n 's/.* V//p')",
    "clang": "$("$llvm/clang" --version | sed -n '1s/.*version \([^ ]*\).*/\1/p')",
    "HIP": "$(sed -n 's/^HIP_VERSION_\(MAJOR\|MINOR\|PATCH\)=//p' "$hip/share/hip/version" | paste -sd .)",
    "Kokkos": "$(kokkos_version serial)"
  }
}
JSON
}
