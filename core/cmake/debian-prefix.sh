# SPDX-License-Identifier: Apache-2.0
# Part of setup.sh: unpacks Debian packages into build/deps. Nothing is installed into the system, so it
# works without root, and `rm -rf build` takes everything away again.
#
#   deps/apt/      package lists of this machine's Debian and of newer suites, read by an apt with its own state
#   deps/tools/    doctest, CLI11, nlohmann-json, fmt
#   deps/serial/   Kokkos and Kokkos Kernels, Serial (Trilinos' packages)
#   deps/openmp/   Kokkos, OpenMP and Serial
#   deps/runtime/  OpenBLAS; and, where the machine's C or C++ library is too old for these, newer ones

debian_mirror() {  # of this machine's own sources, whatever format they are in
  if [ -n "${DEBIAN_MIRROR:-}" ]; then echo "$DEBIAN_MIRROR"; return; fi
  if [ "$(. /etc/os-release; echo "$ID")" != debian ]; then return; fi
  apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Identifier: Packages' |
    awk -v own="$(own_suite)" '$1 == own || $1 ~ /^(stable|testing|unstable)$/ {print $2; exit}'
}

debian_keyring() {
  find /usr/share/keyrings -name 'debian-archive-keyring.[gp][pg][gp]' 2>/dev/null | sort | head -n 1
}

own_suite() {
  (. /etc/os-release; echo "${VERSION_CODENAME:-sid}")
}

own_apt() {  # own_apt apt-get|apt-cache ARGUMENTS
  local tool=$1; shift
  "$tool" -qq -o APT::Sandbox::User=root -o Acquire::Languages=none -o Dir::Etc::SourceList=/dev/null \
    -o Dir::Etc::SourceParts="$deps/apt/sources" -o Dir::Etc::Preferences=/dev/null \
    -o Dir::Etc::PreferencesParts="$deps/apt/none" -o Dir::State::Lists="$deps/apt/lists" \
    -o Dir::Cache="$deps/apt/cache" -o Dir::Cache::pkgcache=packages -o Dir::Cache::srcpkgcache=sources "$@"
}

read_package_lists() {  # fails where there are no Debian packages to be had
  if [ -n "$(find "$deps/apt/complete" -mmin -600 2>/dev/null)" ]; then return; fi
  local mirror keyring suite
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
  mirror=$(debian_mirror) keyring=$(debian_keyring)
  if [ -z "$mirror" ] || [ -z "$keyring" ]; then return 1; fi

  say "reading the lists of Debian's packages"
  mkdir -p "$deps"/apt/{sources,none,lists/partial,cache/archives/partial}
  for suite in $(printf '%s\n' "$(own_suite)" trixie sid experimental | sort -u); do
    printf '%s\n' "Types: deb" "URIs: $mirror" "Suites: $suite" "Components: main" "Signed-By: $keyring" \
      > "$deps/apt/sources/$suite.sources"
  done
  if ! own_apt apt-get update >&2; then
    say "Debian's package lists could not be read"
    return 1
  fi
  touch "$deps/apt/complete"
}

newest_suite() {  # newest_suite PACKAGE: the suite that has its newest version
  own_apt apt-cache madison "$1" | awk -F'|' 'NR == 1 {split($3, part, "[ /]+"); print part[length(part) - 3]}'
}

depends() {  # depends PACKAGE/SUITE...
  own_apt apt-cache show "$@" | sed -n 's/^Depends: //p' | tr ',' '\n' | sed 's/^ *//'
}

unpack() {  # unpack FOLDER PACKAGE/SUITE...
  local folder=$deps/$1 debs deb
  shift
  say "unpacking $* into build/deps/${folder##*/}"
  debs=$(mktemp -d "$deps/apt/debs.XXXXXX")
  (cd "$debs" && own_apt apt-get download "$@" >&2)
  for deb in "$debs"/*.deb; do dpkg -x "$deb" "$folder"; done
  rm -rf "$debs"
}

# bring_tools and bring_kokkos print the CMake lines with which their libraries are found, linked and run.

bring_tools() {
  local suite packages
  if [ ! -e "$deps/tools/complete" ]; then
    suite=$(own_suite)
    packages=({doctest-dev,libcli11-dev,nlohmann-json3-dev,libfmt-dev}/"$suite")
    packages+=($(depends libfmt-dev/"$suite" | grep -oE '^libfmt[0-9]+')/"$suite")
    unpack tools "${packages[@]}"
    # doctest's CMake files name the system's include folder.
    find "$deps/tools" -name doctestTargets.cmake -exec \
      sed -i "s,set(_IMPORT_PREFIX \"/usr\"),set(_IMPORT_PREFIX \"$deps/tools/usr\")," {} +
    touch "$deps/tools/complete"
  fi
  echo "list(APPEND CMAKE_PREFIX_PATH \"$deps/tools/usr\")"
}

bring_kokkos() {  # bring_kokkos serial|openmp
  local folder=$1
  if [ ! -e "$deps/$folder/complete" ]; then
    unpack_kokkos "$folder"
    touch "$deps/$folder/complete"
  fi

  local folders loader
  folders=$(printf ':%s' "$deps"/{runtime,"$folder"}/usr/lib/*-linux-gnu "$deps"/runtime/usr/lib/*/openblas-serial)
  echo "set(Kokkos_ROOT \"$deps/$folder/usr\")"
  # RPATH and not RUNPATH, because only RPATH also serves what the libraries themselves need.
  echo "set(CMAKE_EXE_LINKER_FLAGS_INIT \"-Wl,--disable-new-dtags -Wl,-rpath,${folders#:}\")"
  loader=$(find "$deps"/runtime/usr/lib* -name 'ld-linux-*' | head -n 1)
  if [ -n "$loader" ]; then
    echo "string(APPEND CMAKE_EXE_LINKER_FLAGS_INIT \" -Wl,--allow-shlib-undefined -Wl,--dynamic-linker=$loader\")"
  fi
}

unpack_kokkos() {  # unpack_kokkos serial|openmp
  local packages suite
  case $1 in
    serial) packages=(libtrilinos-kokkos-dev libtrilinos-kokkos-kernels-dev trilinos-dev) ;;
    openmp) packages=(libkokkos-dev) ;;
  esac
  suite=$(newest_suite "${packages[0]}")
  [ -n "$suite" ] || fail "Debian has no ${packages[0]} for this machine; give an installed Kokkos: make Kokkos_ROOT=FOLDER"
  packages=("${packages[@]/%//$suite}")
  # The libraries' own packages have a version in their names, which the -dev packages know.
  packages+=($(depends "${packages[@]}" | grep -oE '^lib(trilinos-kokkos(-kernels)?-|kokkos)[0-9.]+' |
    sed "s,\$,/$suite,"))
  unpack "$1" "${packages[@]}"
  bring_runtime "${packages[@]}"
  case $1 in
    serial) point_at_openblas ;;
    openmp) complete_openmp_package ;;
  esac
}

bring_runtime() {  # bring_runtime PACKAGE/SUITE...: what these packages need to run
  local suite libraries=(libopenblas0-serial libgfortran5 libquadmath0) library needed
  suite=$(own_suite)
  for library in libc6 libstdc++6; do
    needed=$(depends "$@" | sed -n "s/^$library (>= \(.*\))\$/\1/p" | sort -V | tail -n 1)
    if dpkg --compare-versions "$(dpkg-query -W -f '${Version}' $library)" lt "${needed:-0}"; then
      say "this machine's $library is older than $needed, which the Kokkos packages need: a newer one goes beside them"
      libraries+=(libc6 libstdc++6 libgcc-s1 libgomp1) suite=trixie
      break
    fi
  done
  if [ -e "$deps/runtime/complete" ]; then return; fi
  unpack runtime "${libraries[@]/%//$suite}"
  touch "$deps/runtime/complete"
}

point_at_openblas() {  # the packages' CMake files name the system's BLAS and LAPACK
  local openblas; openblas=$(echo "$deps"/runtime/usr/lib/*/openblas-serial)
  ln -sf ../libgfortran.so.5 ../libquadmath.so.0 "$openblas"  # OpenBLAS' own RUNPATH looks nowhere else
  sed -i -E "s,\"/usr/lib/[^\"]*/lib(blas|lapack)\.so\",\"$openblas/lib\1.so.3\"," \
    "$deps"/serial/usr/lib/*/cmake/trilinos_external_packages/{BLAS,LAPACK}/*Config.cmake
}

complete_openmp_package() {  # its CMake files name two archives that it lacks, and the system's include folder
  local cmake archive
  cmake=$(echo "$deps"/openmp/usr/lib/*/cmake/Kokkos)
  sed -i 's,"/usr/include/kokkos","${_IMPORT_PREFIX}/include/kokkos",' "$cmake/KokkosTargets.cmake"
  for archive in $(grep -oE 'libkokkos[a-z]*\.a' "$cmake"/KokkosTargets-*.cmake | sed 's/.*://' | sort -u); do
    [ -e "$cmake/../../$archive" ] || ar rc "$cmake/../../$archive"
  done
}
