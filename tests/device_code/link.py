#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""link.py DEVICE_TOOLS cuda|hip PROGRAM OBJECT...: links a program with the vendor's libraries, and with a stand-in
for Kokkos' library, of which there is none for GPUs here. What is undefined then is a fault. The program cannot run."""
import json
import pathlib
import re
import subprocess
import sys

KOKKOS = r"_Z(T[VITS]|GV)?N?K?(6Kokkos|5desul)"  # mangled names that begin in these namespaces
VENDOR = {"cuda": {"libcudart": r"_*cuda[A-Z]", "libcublasLt": r"cublas"}, "hip": {"libamdhip64": r"_*hip[A-Z]"}}


def symbols(llvm, objects, option):
    text = subprocess.run([f"{llvm}/llvm-nm", option, "--format=just-symbols", "--quiet", *objects], check=True,
                          capture_output=True, text=True).stdout
    return {line for line in text.split() if not line.endswith(":")}


def find_library(tools, name):
    """Beside the compiler's programs, or in HIP's folder; None if there are only headers."""
    roots = [pathlib.Path(tools["nvcc"]).resolve().parents[1], pathlib.Path(tools["hip"])]
    folders = ("lib64", "lib", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu")
    found = [path for root in roots for folder in folders for path in sorted((root / folder).glob(f"{name}.so*"))]
    return str(found[0]) if found else None


def main(description, vendor, program, *objects):
    tools = json.loads(pathlib.Path(description).read_text())
    llvm, clang = tools["llvm"], tools["clang"]
    missing = symbols(llvm, objects, "--undefined-only") - symbols(llvm, objects, "--defined-only")
    stand_ins, libraries = [KOKKOS], []
    for name, pattern in VENDOR[vendor].items():
        if library := find_library(tools, name):
            libraries.append(library)
        else:
            print(f"link.py: there is no {name} here; a stand-in takes its place")
            stand_ins.append(pattern)

    names = sorted(symbol for symbol in missing if any(re.match(pattern, symbol) for pattern in stand_ins))
    source = "".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in names)
    stand_in = f"{program}-stand-in.so"
    subprocess.run([clang, "-w", "-x", "c", "-", "-shared", "-fPIC", "-nostdlib", "-fuse-ld=lld", "-o", stand_in],
                   input=source, check=True, text=True)
    subprocess.run([clang, "-fuse-ld=lld", "-Wl,--allow-shlib-undefined", *objects, stand_in, *libraries, "-ldl",
                    "-lpthread", "-o", program], check=True)
    print(f"{program}: linked, with {len(names)} symbols that Kokkos' library would give")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except subprocess.CalledProcessError as error:  # the tool has said why
        sys.exit(error.stderr or 1)
