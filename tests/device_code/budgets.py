#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the machine code of all operators to rules, and to the table in budgets.tsv.

budgets.py FOLDER [--write] [--list]   FOLDER: where compile.sh has compiled
  --write   write the table anew
  --list    print all that is known of each kernel
The table is compared where the compilers are those that wrote it; elsewhere the rules alone are applied."""
import argparse
import concurrent.futures
import difflib
import json
import os
import pathlib
import sys

from kernels import CHIPS
from read_code import read_file

HERE = pathlib.Path(__file__).resolve().parent
# Bytes: 512 of the kernel's own, which core/launch.hpp asserts, and Kokkos' team policy of 152 beside it. (With the hint that launches give,
# Kokkos passes up to 4096 as they are; beyond that they would go through memory, which breaks capture.)
LARGEST_ARGUMENT = 512 + 160
SKIPPED = 77
# What is compiled for all chips, and the chips of the others (as in CMakeLists.txt).
ONE_OF_EACH_KIND = {"attention", "chain", "linear", "rmsnorm", "swiglu"}
NEWEST = ("sm_90a", "gfx942")
# Kernels that do spill, and where. None may be added without a reason, and what spills no more must go.
KNOWN_SPILLS = {
    # Rows of two packs a lane, and no more than 256 registers.
    ("attention AttentionRowsKernel<float, wide, 256>", "gfx1100"),
    ("attention AttentionRowsKernel<float, single, 256>", "gfx1100"),
} | {tuple(line.split("\t")) for line in (HERE / "known_spills.tsv").read_text().splitlines() if line[0] != "#"}
# Kernels whose 16-byte stores the compiler has taken apart.
NARROW_STORES = {"qk_rmsnorm HeldRowsKernel<float, 4, 8, 1> of 4 stages",
                 "qk_rmsnorm HeldRowsKernel<bf16, 8, 8, 1> of 4 stages"}

LEGEND = """\
# What each kernel takes of each chip, read from its machine code; written by `make budgets`. A cell tells
#   r  registers of a thread
#   o  teams (NVIDIA), or waves on a vector unit (AMD), that these let fit at once; not told of kernels whose launch
#      bounds the code does not name
#   /  16-byte loads and stores of global memory
# and, of what there is, m matrix instructions, s bytes of shared memory, x spilled registers, b bytes of stack, and
# l scalar registers kept in lanes of vector registers."""


def spills(kernel):
    """Fragment kernels may: the table tells."""
    return not kernel.functor.uses_fragments and bool(kernel.spills or kernel.stack)


def faults_of(kernel, known_spills=frozenset()):
    """What is wrong with a kernel."""
    functor, bounds = kernel.functor, kernel.bounds
    if kernel.instructions == 0:
        yield "no code was found"
        return
    if functor.uses_fragments and kernel.matrix == 0:
        yield "it is written over fragments, and has no matrix instruction"
    if spills(kernel) and (kernel.name, kernel.target) not in known_spills:
        yield f"it spills ({kernel.spills} registers, {kernel.stack} bytes of stack); give it more registers"
    if functor.is_wide and functor.reads_values and kernel.wide_loads == 0:
        yield "its access is wide, and it has no 16-byte load"
    if functor.is_wide and functor.writes_values and kernel.wide_stores == 0 and kernel.name not in NARROW_STORES:
        yield "its access is wide, and it has no 16-byte store"
    if kernel.argument > LARGEST_ARGUMENT:
        yield f"its argument takes {kernel.argument} bytes, more than {LARGEST_ARGUMENT}"
    if bounds and kernel.occupancy < bounds[1]:
        yield f"{kernel.occupancy} {CHIPS[kernel.target].counts} fit at once, fewer than the {bounds[1]} it states"


def missing(kernels, headers, sources):
    """Operators that are not compiled at all, or not for some chip. `attention_rows` is a part of `attention`."""
    parts = {name for name in headers for other in headers if name.startswith(other + "_")}
    for name in sorted(headers - parts - sources):
        yield f"fused/{name}.hpp has no tests/device_code/{name}.cpp"
    for name in sorted(sources):
        for target in CHIPS if name in ONE_OF_EACH_KIND else NEWEST:
            if not any(k.operator == name and k.target == target for k in kernels):
                yield f"{name}: no kernel was found for {target}"
    over_fragments = {kernel.target for kernel in kernels if kernel.functor.uses_fragments}
    for target in CHIPS:
        if over_fragments and target not in over_fragments:
            yield f"no kernel over matrix instructions was found for {target}"


def cell(kernel):
    parts = [f"{kernel.registers}r"]
    if kernel.occupancy is not None:
        parts.append(f"{kernel.occupancy}o")
    parts.append(f"{kernel.wide_loads}/{kernel.wide_stores}")
    for value, unit in ((kernel.matrix, "m"), (kernel.shared, "s"), (kernel.spills, "x"), (kernel.stack, "b"),
                        (kernel.scalar_spills, "l")):
        if value:
            parts.append(f"{value}{unit}")
    return " ".join(parts)


def names_of(kernels):
    """Of each kernel, and of its stages, where kernels differ in them alone."""
    functors = {}
    for kernel in kernels:
        functors.setdefault(kernel.name, set()).add(str(kernel.functor))
    return [kernel.name if len(functors[kernel.name]) == 1 else
            f"{kernel.name}: {', '.join(map(str, kernel.functor.stages or kernel.functor.arguments))}" for kernel in kernels]


def table(kernels, versions):
    rows = {}
    for kernel, name in zip(kernels, names_of(kernels)):
        cells = rows.setdefault(name, {})
        if kernel.target in cells and cells[kernel.target] != cell(kernel):
            raise ValueError(f"two kernels have the name {name}")
        cells[kernel.target] = cell(kernel)
    lines = [LEGEND, version_line(versions), "\t".join(["kernel", *CHIPS])]
    for name in sorted(rows):
        lines.append("\t".join([name, *(rows[name].get(target, "-") for target in CHIPS)]))
    return "\n".join(lines) + "\n"


def version_line(versions):
    return "# " + ", ".join(f"{name} {version}" for name, version in versions.items())


def changes(committed, found):
    """Lines of the table that differ, the committed one first."""
    lines = difflib.unified_diff(committed.splitlines(), found.splitlines(), "budgets.tsv", "found", n=0, lineterm="")
    return list(lines)


def check(kernels, headers, sources, committed, versions, known_spills=KNOWN_SPILLS):
    """(faults, remarks)"""
    faults = list(missing(kernels, headers, sources))
    for kernel in kernels:
        faults += [f"{kernel.name} on {kernel.target}: {fault}" for fault in faults_of(kernel, known_spills)]
    spilling = {(kernel.name, kernel.target) for kernel in kernels if spills(kernel)}
    faults += [f"{name} on {target} spills no more; strike it from KNOWN_SPILLS"
               for name, target in sorted(known_spills - spilling)]
    if version_line(versions) not in committed.splitlines():
        return faults, ["the table is of other compilers' code, and not compared; these are " +
                        version_line(versions)[2:]]
    if different := changes(committed, table(kernels, versions)):
        faults.append("the table differs; see what has changed, and then `make budgets` writes it anew:")
        faults += different
    return faults, []


def code_in(folder):
    """What CMakeLists.txt compiles of the operators, and nothing that an earlier one has left in the folder."""
    outputs = (pathlib.Path(line) for line in (folder / "outputs.txt").read_text().splitlines())
    return sorted(path for path in outputs if path.parent.name == "code")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()

    description = HERE.parents[1] / "build/deps/device-code.json"
    sources = {path.stem for path in HERE.glob("*.cpp")}
    if not description.exists() or not (arguments.folder / "compiled").exists():
        print("skipped: nothing has been compiled, see device_code_compile")
        return SKIPPED
    tools = json.loads(description.read_text())
    files = code_in(arguments.folder)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # the time is the disassemblers'
        kernels = [kernel for found in pool.map(lambda file: read_file(tools, file), files) for kernel in found]
    if arguments.list:
        for k in kernels:
            print(f"{k.target}\t{k.name}\t{cell(k)}\tbounds {k.bounds}, argument {k.argument}, {k.instructions} instructions")

    committed = HERE / "budgets.tsv"
    if arguments.write:
        committed.write_text(table(kernels, tools["versions"]))
    headers = {path.stem for path in (HERE.parents[1] / "fused").glob("*.hpp")}
    faults, remarks = check(kernels, headers, sources, committed.read_text(), tools["versions"])
    for line in remarks + faults:
        print(line)
    print(f"{len(kernels)} kernels, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
