# SPDX-License-Identifier: Apache-2.0
"""Reads the kernels of compiled files: NVIDIA's by cuobjdump, AMD's by LLVM's readelf and objdump."""
import collections
import pathlib
import re
import subprocess

from kernels import Kernel, functor_of, launch_bounds

# Mnemonics. LD and LDG, flat and global: the same memory, whether or not the compiler knows that it is global.
CUDA = {
    "wide_loads": r"LDG?\b.*\.128\b|LDGSTS\b.*\.128\b",
    "wide_stores": r"STG?\b.*\.128\b",
    "matrix": r"\w*MMA\b",
}
HIP = {
    "wide_loads": r"(global|flat|buffer)_load_(dwordx4|b128)$",
    "wide_stores": r"(global|flat|buffer)_store_(dwordx4|b128)$",
    "matrix": r"v_(mfma|smfmac|wmma|swmmac)_",
}
CUDA_PARAMETERS = {"sm_80": 0x160, "sm_90a": 0x210}  # where a kernel's argument begins in constant bank 0


def output(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, **options).stdout


def demangle(tools, names):
    return output(f"{tools['llvm']}/llvm-cxxfilt", input="\n".join(names)).splitlines()


def counts(mnemonics, classes):
    found = {name: sum(n for mnemonic, n in mnemonics.items() if re.match(pattern, mnemonic))
             for name, pattern in classes.items()}
    return found | {"instructions": sum(mnemonics.values())}


def cuda_code(text):
    """{target: {kernel: how often it has each mnemonic}} of what `cuobjdump -sass` prints."""
    code, kernel, target = {}, collections.Counter(), ""
    instruction = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)")
    for line in text.splitlines():
        if found := instruction.match(line):
            if found[1] != "NOP":  # what fills the last line of the instruction cache
                kernel[found[1]] += 1
        elif found := re.match(r"arch = (\w+)", line):
            target = found[1]
        elif found := re.match(r"\s+Function : (\S+)", line):
            kernel = code.setdefault(target, {}).setdefault(found[1], collections.Counter())
    return code


def cuda_resources(text):
    """{target: {kernel: {"REG": n, ...}}} of what `cuobjdump -res-usage` prints."""
    resources, target, kernel = {}, "", ""
    for line in text.splitlines():
        if found := re.match(r"arch = (\w+)", line):
            target = found[1]
        elif found := re.match(r"\s+Function (\S+):$", line):
            kernel = found[1]
        elif line.startswith("  REG:"):
            resources.setdefault(target, {})[kernel] = {
                name: int(value) for name, value in re.findall(r"([A-Z]+(?:\[\d\])?):(\d+)", line)}
    return resources


def read_cuda(tools, path, operator):
    code = cuda_code(output(tools["cuobjdump"], "-sass", path))
    kernels = []
    for target, resources in cuda_resources(output(tools["cuobjdump"], "-res-usage", path)).items():
        for (symbol, taken), name in zip(resources.items(), demangle(tools, resources)):
            if (functor := functor_of(name)) is None:
                continue
            kernels.append(Kernel(
                operator, target, functor, launch_bounds(name), registers=taken["REG"], spills=0, scalar_spills=0,
                stack=taken["STACK"] + taken["LOCAL"], shared=taken["SHARED"],
                argument=taken["CONSTANT[0]"] - CUDA_PARAMETERS[target], wave=32,
                **counts(code.get(target, {}).get(symbol, {}), CUDA)))
    return kernels


def hip_code(text):
    """{kernel: how often it has each mnemonic} of what `llvm-objdump -d` prints."""
    code, kernel = {}, collections.Counter()
    instruction = re.compile(r"\s+([a-z]\w+)")
    for line in text.splitlines():
        if found := instruction.match(line):
            kernel[found[1]] += 1
        elif found := re.match(r"(?:[0-9a-f]+ )?<(.+)>:$", line):
            kernel = code.setdefault(found[1], collections.Counter())
    return code


def hip_resources(text):
    """One dictionary for each kernel, of what `llvm-readelf --notes` prints."""
    kernels = []
    for block in re.split(r"\n  - (?=\.)", text)[1:]:
        values = dict(re.findall(r"^ {0,4}\.(\w+): +'?([^\n']+)'?$", block, re.MULTILINE))
        size = re.search(r"\.size: +(\d+)\n +\.value_kind: +by_value", block)
        kernels.append(values | {"argument": size[1] if size else "0"})
    return [kernel for kernel in kernels if "symbol" in kernel]


def read_hip(tools, path, operator, target):
    code = hip_code(output(f"{tools['llvm']}/llvm-objdump", "-d", "--no-show-raw-insn", "--no-leading-addr", path))
    resources = hip_resources(output(f"{tools['llvm']}/llvm-readelf", "--notes", path))
    kernels = []
    for taken, name in zip(resources, demangle(tools, [each["name"] for each in resources])):
        if (functor := functor_of(name)) is None:
            continue
        number = {key: int(value) for key, value in taken.items() if value.isdigit()}
        kernels.append(Kernel(
            operator, target, functor, launch_bounds(name), registers=number["vgpr_count"],
            spills=number["vgpr_spill_count"], scalar_spills=number["sgpr_spill_count"],
            stack=number["private_segment_fixed_size"], shared=number["group_segment_fixed_size"], argument=number["argument"], wave=number["wavefront_size"],
            **counts(code.get(taken["name"], {}), HIP)))
    return kernels


def read_file(tools, path):
    """The kernels of <operator>.cuda.fatbin or <operator>.<AMD chip>.co."""
    operator, target, _ = pathlib.Path(path).name.split(".")
    return read_cuda(tools, path, operator) if target == "cuda" else read_hip(tools, path, operator, target)
