#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which operator works where, for which element types: the table of the README.

  support_matrix.py --build FOLDER [--check README.md]     the table, or whether README.md holds it as it is
  support_matrix.py --record LOG --space cuda --device NAME --date YYYY-MM-DD --commit HASH
                                               a run of the tests elsewhere, as JSON

"Run" means that the tests of an operator, tests/<operator>.cpp, passed in this element type: on the host in the build
in FOLDER, elsewhere as recorded in tests/data/runs/*.json. "Compiled" means that machine code was made and read
(tests/device_code/budgets.tsv), which says nothing about what it computes. A record is made from the output of
`kfuse-tests --duration=true`."""
import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ELEMENTS = {"double": "fp64", "float": "fp32", "bf16": "bf16", "fp16": "fp16"}
RANDOM = "is right on 2,000 random shapes"  # how tests of random cases are named
VENDORS = {"CUDA": r"sm_\d+", "HIP": r"gfx"}


def operators(root=ROOT):
    """The names of fused/*.hpp, less the parts of another one: attention_rows is a part of attention. What has device
    code of its own is no part."""
    names = {path.stem for path in (root / "fused").glob("*.hpp")}
    whole = {path.stem for path in (root / "tests/device_code").glob("*.cpp")}
    return sorted(name for name in names
                  if name in whole or not any(name.startswith(other + "_") for other in names))


def elements_of(test):
    """Of `a test of something<kfuse::bf16>`: bf16. Of random cases, which are of all types (random_cases.hpp): all."""
    if RANDOM in test:
        return set(ELEMENTS.values())
    found = re.search(r"<(?:kfuse::)?(\w+)>$", test)
    return {ELEMENTS[found[1]]} if found and found[1] in ELEMENTS else set()


def passed_files(log):
    """The tests that CTest's log LastTest.log says have passed."""
    return set(re.findall(r"^\d+/\d+ Test: (\w+)$(?:(?!^\d+/\d+ Testing).)*?^Test Passed\.$", log, re.M | re.S))


def ran_on_host(build):
    """{operator: element types} of the test files that passed in this build, by CTest's own log."""
    log = (build / "Testing/Temporary/LastTest.log").read_text(errors="replace")
    result = {}
    for name in set(operators()) & passed_files(log):
        command = [build / "tests/kfuse-tests", f"--source-file=*/{name}.cpp", "--list-test-cases"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        result[name] = set().union(*map(elements_of, listed.splitlines()))
    return result


def record(log, space, device, date, commit):
    """The same of a run elsewhere, for the operators it tested. A test that failed takes its element type away."""
    text = pathlib.Path(log).read_text(errors="replace")
    summary = re.search(r"test cases: +(\d+) \| +(\d+) passed \| +(\d+) failed", text)
    passed, failed = {}, {}
    for block in re.split(r"^={20,}$", text, flags=re.M):
        for file, test in re.findall(r"tests/(\w+)\.cpp:\d+:\n(?:TEST SUITE: .*\n)?TEST CASE:  (.*)", block):
            group = failed if "ERROR:" in block else passed
            group.setdefault(file, set()).update(elements_of(test))
    tested = set(passed) | set(failed)
    elements = {name: sorted(passed.get(name, set()) - failed.get(name, set())) for name in operators() if name in tested}
    return {"space": space, "device": device, "date": date, "commit": commit, "passed": int(summary[2]),
            "failed": int(summary[3]), "elements": elements}


def compiled(pattern):
    """{operator: element types} with machine code for the chips of a vendor that are read."""
    lines = [line for line in (ROOT / "tests/device_code/budgets.tsv").read_text().splitlines() if line[0] != "#"]
    chips = lines[0].split("\t")[1:]
    result = {}
    for line in lines[1:]:
        name, *cells = line.split("\t")
        found = re.search(r"<(?:kfuse::)?(\w+)", name)
        if any(cell != "-" for chip, cell in zip(chips, cells) if re.match(pattern, chip)) and found[1] in ELEMENTS:
            result.setdefault(name.split()[0], set()).add(ELEMENTS[found[1]])
    return result


def runs_elsewhere(records):
    """A column for each device: of each operator its latest run there."""
    devices = {}
    for run in sorted(records, key=lambda run: run["date"]):
        when, elements = devices.setdefault((run["space"].upper(), run["device"]), ([], {}))
        when.insert(0, f"{run['date']}, {run['commit']}")
        elements.update(run["elements"])
    return {f"{space}, run ({device}, {'; '.join(when)})": elements for (space, device), (when, elements) in devices.items()}


def in_order(paths):
    """Records by their number: h200.json, h200_2.json, ..., h200_10.json."""
    return sorted(paths, key=lambda path: (len(path.name), path.name))


def table(build):
    columns = {"host, run": ran_on_host(build)}
    columns |= runs_elsewhere(json.loads(path.read_text()) for path in in_order((ROOT / "tests/data/runs").glob("*.json")))
    for vendor, pattern in VENDORS.items():
        columns[f"{vendor}, compiled"] = compiled(pattern)
    lines = ["| operator | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in operators():
        cells = [" ".join(e for e in ELEMENTS.values() if e in column.get(name, ())) for column in columns.values()]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--check", type=pathlib.Path)
    for name in ("--record", "--space", "--device", "--date", "--commit"):
        parser.add_argument(name)
    options = parser.parse_args()
    if options.record:
        print(json.dumps(record(options.record, options.space, options.device, options.date, options.commit), indent=1))
        return
    now = table(options.build)
    if not options.check:
        print(now, end="")
    elif now not in options.check.read_text():
        sys.exit(f"{options.check} does not hold the table of what works where, which is now:\n\n{now}")


if __name__ == "__main__":
    main()
