#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""source_rules.py ROOT: what keeps one source fit for all vendors, checked in the sources themselves.

Outside backends/:
  vendor    nothing names a vendor's language, built-in or chip, and no #if asks for one
  width     nothing knows how many lanes a group has: lane numbers meet no 31, 32, 63 or 64 (as far as one expression
            shows it; what runs on lanes of both widths in tests/*_lanes.cpp shows the rest)
  kernel    every kernel is a struct with the bounds `threads` and `registers`, started by impl::launch alone
  atomic    no atomics but fences, and std::atomic_ref on the host: sums are taken in a fixed order
  if        what backends/ has for one vendor is guarded by that vendor's macro
  lanes     each operator runs in a tests/*_lanes.cpp
  rows      each operator is among those that tests of all row operators run (tests/row_operator_list.hpp), with 2,000
            random cases of its own, or is called in tests/labels.cpp
  readme    the README's tables name each operator and each stage
  cure      in core/ and fused/, what check() throws tells a cure behind a semicolon
Comments and string literals may say what they like. One line per finding; the exit status is 1 if there is any."""
import pathlib
import re
import sys

from support_matrix import operators

VENDOR = re.compile(
    r"\b(cuda\w*|hip[A-Z_]\w*|sycl|nvcc|__shfl\w*|__syncthreads|__syncwarp|__global__|__device__|__shared__"
    r"|(thread|block)Idx|(block|grid)Dim|\w*(warp|wavefront)\w*|__CUDA\w*|__HIP\w*|__gfx\w+|__NVCC__|__AMDGCN\w*"
    r"|__builtin_amdgcn\w*|KOKKOS_ENABLE_(CUDA|HIP|SYCL)\w*|KOKKOS_ARCH_\w+|asm)\b"
    r"|(?<![a-z\d])(cuda|hip|sm_?\d\d|gfx\d\w|volta|turing|ampere|hopper|blackwell|[cr]dna|[agv]100|h[12]00"
    r"|mi[123]\d\d)(?![a-z])", re.IGNORECASE)
LANES = r"(?:rank\(\)|size\(\)|\b\w*(?:lane|width|rank|wave)\w*)"
NUMBERS = r"\b(?:31|32|63|64|0x1f|0x20|0x3f|0x40)u?\b"
OPERATOR = r"\s*\)?\s*(?:[-+*/%&|^<>=!]=?|<<|>>)\s*"
WIDTH = re.compile(rf"{LANES}{OPERATOR}{NUMBERS}|{NUMBERS}{OPERATOR}(?:[\w.]|::|->)*{LANES}"
                   rf"|{LANES}\s*>>\s*[56]\b|{LANES}[^;{{}},]*\)\s*[%/&]\s*{NUMBERS}|\bthreads\s*[%/]\s*{NUMBERS}"
                   rf"|\b(?:shuffle\w*|broadcast)\([^;{{}}]*{NUMBERS}\s*\)")
LAUNCHES = re.compile(r"\b(parallel_(for|reduce|scan)|KOKKOS_(CLASS_)?LAMBDA|TeamPolicy|RangePolicy|MDRangePolicy)\b")
TEAMS_OWN = re.compile(r"\bteam_(reduce|scan|broadcast|barrier|scratch|shmem)\b")
KERNEL = re.compile(r"\b(?:struct|class)\s+(\w*Kernel)\b[^;{}()]*\{")


def code_of(text):
    """The text without comments and the insides of literals; line numbers stay."""
    token = re.compile(r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.DOTALL)

    def blank(match):
        found = match.group()
        return ('""' if found[0] in "\"R" else "' '" if found[0] == "'" else "") + "\n" * found.count("\n")

    return token.sub(blank, text)


def body(code, start):
    """The text between the braces that open at `start`."""
    depth = 0
    for end in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[end], 0)
        if depth == 0:
            return code[start:end]
    return code[start:]


def line_of(code, position):
    return code.count("\n", 0, position) + 1


def vendor(code):
    for match in VENDOR.finditer(code):
        yield line_of(code, match.start()), f"names '{match.group()}', which only backends/ may"


def width(code):
    for match in WIDTH.finditer(code):
        yield line_of(code, match.start()), f"'{match.group()}': ask the lanes for their width"


def kernel(code):
    for match in KERNEL.finditer(code):
        own = body(code, match.end() - 1)
        for bound in ("threads", "registers"):
            if not re.search(rf"\bstatic constexpr int [^;]*\b{bound}\b", own):
                yield line_of(code, match.start()), f"{match.group(1)} does not state its launch bound '{bound}'"
    for match in LAUNCHES.finditer(code):
        yield line_of(code, match.start()), f"'{match.group()}': kernels are structs, started by impl::launch"
    for match in TEAMS_OWN.finditer(code):
        yield line_of(code, match.start()), f"'{match.group()}': lanes have memory, barriers and exchanges of LanesOf"


def atomic(code):
    for match in re.finditer(r"\batomic_(?!fence|ref)\w+|\bAtomic\b", code):
        yield line_of(code, match.start()), f"'{match.group()}': sums are taken in a fixed order"


def cure(text):
    """Messages of check(...) that say what is wrong and not what to do. Takes the text with its literals."""
    code = re.sub(r"//[^\n]*", lambda comment: " " * len(comment.group()), text)
    for call in re.finditer(r"(?<!void )(?<!template )\bcheck\(", code):
        depth, end = 1, call.end()
        while depth and end < len(code):
            if code[end] == '"':
                end = re.compile(r'"(?:\\.|[^"\\])*"').match(code, end).end()
                continue
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        literals = re.findall(r'"((?:\\.|[^"\\])*)"', code[call.start():end])
        message = "".join(literals)
        if " " in message.strip() and len(message) > 24 and ";" not in message and "choose" not in message:
            yield line_of(code, call.start()), f"'{message}' tells no cure"


def guards(code, macro):
    """Vendor built-ins that stand outside of an #if on that vendor's macro (one that `macro` matches)."""
    builtin = re.compile(r"\basm\b|__cvta\w*|__builtin_amdgcn\w*|__shfl\w*|\bwarpSize\b")
    open_conditions = []
    for number, line in enumerate(code.splitlines(), 1):
        directive = re.match(r"\s*#\s*(if\w*|elif|else|endif)\b(.*)", line)
        if directive:
            if directive.group(1) in ("elif", "else", "endif"):
                open_conditions.pop()
            if directive.group(1) != "endif":
                guards_nothing = directive.group(1) in ("ifndef", "else") or "||" in directive.group(2)
                open_conditions.append("" if guards_nothing else directive.group(2))
        elif (found := builtin.search(line)) and not any(re.match(rf"[^!]*({macro})", c) for c in open_conditions):
            yield number, f"'{found.group()}' is outside of #if defined({macro})"


def findings(root):
    """(file, line, rule, message) of everything in the sources under `root` that breaks a rule."""
    root = pathlib.Path(root)
    everywhere, kernels = (vendor, width), (kernel, atomic)
    rules = {"core": everywhere + kernels, "fused": everywhere + kernels, "models": everywhere + kernels,
             "bench": everywhere}
    for folder, checks in rules.items():
        for path in sorted((root / folder).rglob("*.[hc]pp")):
            code = code_of(path.read_text())
            for check in checks:
                for line, message in check(code):
                    yield path.relative_to(root), line, check.__name__, message
    for folder in ("core", "fused"):
        for path in sorted((root / folder).rglob("*.hpp")):
            for line, message in cure(path.read_text()):
                yield path.relative_to(root), line, "cure", message
    for folder, macro in (("cuda", "__CUDA_ARCH__"), ("hip", "__HIP_DEVICE_COMPILE__|__gfx|__has_builtin")):
        for path in sorted((root / "backends" / folder).rglob("*.hpp")):
            for line, message in guards(code_of(path.read_text()), macro):
                yield path.relative_to(root), line, "if", message


def operators_without_lanes(root):
    """Operators that no tests/*_lanes.cpp runs on lanes that really exist."""
    root = pathlib.Path(root)
    included = "".join(path.read_text() for path in (root / "tests").glob("*_lanes.[hc]pp"))
    for name in operators(root):
        if f"<kfuse/fused/{name}.hpp>" not in included:
            yield pathlib.Path("fused", name + ".hpp"), 1, "lanes", f"no tests/*_lanes.cpp includes and runs {name}"


def operators_without_rows(root):
    """Operators that the tests of all row operators do not run, or that have no random cases of their own."""
    root = pathlib.Path(root)
    tests = root / "tests"
    listed, called = ((tests / name).read_text() for name in ("row_operator_list.hpp", "labels.cpp"))
    for name in operators(root):
        path = pathlib.Path("fused", name + ".hpp")
        if not re.search(rf'\blist\("{name}[",]', listed):
            if f" kfuse::{name}(" not in called:
                yield path, 1, "rows", f"neither tests/row_operator_list.hpp nor tests/labels.cpp runs {name}"
        elif f'_random_cases("{name}"' not in (tests / (name + ".cpp")).read_text():
            yield path, 1, "rows", f"tests/{name}.cpp has no 2,000 random cases of {name}"


def stages(root):
    """The public functions of fused/stage/*.hpp, each of which makes a stage."""
    for path in sorted(pathlib.Path(root, "fused/stage").glob("*.hpp")):
        code = code_of(path.read_text())
        for inner in reversed(list(re.finditer(r"^namespace (kfuse::)?impl \{", code, re.M))):
            code = code.replace(body(code, inner.end() - 1), "")
        for match in re.finditer(r"^(?:inline |constexpr )?(?:auto|[A-Z][\w:<>]*) (\w+)\([^;{]*\{$", code, re.M):
            yield path.relative_to(root), match.group(1)


def not_in_readme(root):
    """Operators and stages that no table row of the README names."""
    root = pathlib.Path(root)
    rows = "".join(line for line in (root / "README.md").read_text().splitlines() if line.startswith("| `"))
    public = [(pathlib.Path("fused", name + ".hpp"), name) for name in operators(root)]
    for path, name in [*public, *stages(root)]:
        if not re.search(rf"`{name}[`(]", rows):
            yield path, 1, "readme", f"no table of README.md names `{name}`"


if __name__ == "__main__":
    if not list(pathlib.Path(sys.argv[1]).glob("fused/*.hpp")):
        sys.exit(f"{sys.argv[1]} holds no sources of kfuse")
    broken = 0
    checks = (findings, operators_without_lanes, operators_without_rows, not_in_readme)
    for path, line, rule, message in [found for check in checks for found in check(sys.argv[1])]:
        print(f"{path}:{line}: [{rule}] {message}")
        broken += 1
    if broken == 0:
        print("one source for all vendors: nothing found")
    sys.exit(broken > 0)
