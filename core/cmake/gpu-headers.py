#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu-headers.py KOKKOS TARGET FOLDER: makes the headers of a Kokkos for the host serve a GPU.

A Kokkos installs the headers of all its backends; five generated ones say which of them are on. FOLDER gets these
five, with Serial and the GPU's backend on: code that finds them before those in KOKKOS compiles for TARGET (sm_80 or
an AMD chip, gfx...). There is no library behind it."""
import pathlib
import re
import sys

CUDA_CHIPS = {"sm_80": ("AMPERE", "AMPERE80")}


def off(text, name):
    return re.sub(rf"^#define {name}\b.*$", f"/* #undef {name} */", text, flags=re.MULTILINE)


def on(text, name, value=""):
    text, count = re.subn(rf"^/\* #undef {name} \*/$", f"#define {name} {value}".rstrip(), text, flags=re.MULTILINE)
    if count != 1:
        sys.exit(f"gpu-headers: this Kokkos has no switch {name}")
    return text


def configuration(text, backend, target):
    for host in ("OPENMP", "THREADS", "HPX", "SERIAL"):
        text = off(text, f"KOKKOS_ENABLE_{host}")
    text = on(on(text, "KOKKOS_ENABLE_SERIAL"), f"KOKKOS_ENABLE_{backend}")
    text = off(off(text, "KOKKOS_ENABLE_ATOMICS_BYPASS"), "KOKKOS_IMPL_BUILD_SHARED_LIBS")
    if backend == "HIP":
        return on(on(text, f"KOKKOS_ARCH_AMD_{target.upper()}"), "KOKKOS_ARCH_AMD_GPU", f'"{target}"')
    for chip in CUDA_CHIPS[target]:
        text = on(text, f"KOKKOS_ARCH_{chip}")
    return text


def including(text, *headers):
    """The header with these includes instead of its own, after its guard."""
    text = re.sub(r"^#include .*\n", "", text, flags=re.MULTILINE)
    lines = "".join(f"#include <{header}>\n" for header in headers)
    return re.sub(r"^(#define \w+_HPP_)\n", rf"\1\n{lines}", text, count=1, flags=re.MULTILINE)


def main(kokkos, target, folder):
    backend = "HIP" if target.startswith("gfx") else "CUDA"
    changes = {
        "KokkosCore_config.h": lambda text: configuration(text, backend, target),
        "KokkosCore_Config_DeclareBackend.hpp": lambda text: including(
            text, "decl/Kokkos_Declare_SERIAL.hpp", f"decl/Kokkos_Declare_{backend}.hpp"),
        "KokkosCore_Config_FwdBackend.hpp": lambda text: including(
            text, "fwd/Kokkos_Fwd_SERIAL.hpp", f"fwd/Kokkos_Fwd_{backend}.hpp"),
        "KokkosCore_Config_SetupBackend.hpp": lambda text: including(
            text, f"setup/Kokkos_Setup_{'HIP' if backend == 'HIP' else 'Cuda'}.hpp"),
        "desul/atomics/Config.hpp": lambda text: on(
            off(text, "DESUL_IMPL_BUILD_SHARED_LIBS"), f"DESUL_ATOMICS_ENABLE_{backend}"),
    }
    for name, change in changes.items():
        before = (pathlib.Path(kokkos) / name).read_text()
        after = change(before)
        if after == before:
            sys.exit(f"gpu-headers: there is nothing to change in {name}; has its form changed?")
        to = pathlib.Path(folder) / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_text() != after:  # so that nothing is compiled again
            to.write_text(after)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
