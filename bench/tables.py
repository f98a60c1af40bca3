#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of the README from the results of kfuse-bench and bench/peers/compare.py.

    python3 bench/tables.py bench/results
"""
import glob
import json
import os
import sys


def microseconds(run):
    return f"{run['median_seconds'] * 1e6:.1f} us" if run and run["median_seconds"] else ""


def ratio(run, other):
    return f"{run['median_seconds'] / other['median_seconds']:.2f}" if run and other else ""


def table(rows, modes, last):
    """rows: (work, its runs by mode); last: a heading and what to put below it."""
    lines = ["| work | " + " | ".join(modes) + f" | launches | fused / eager | {last[0]} |", "|---" * (len(modes) + 4) + "|"]
    for work, runs in rows:
        eager, fused = runs.get("eager"), runs.get("fused")
        launches = " -> ".join(str(run["launches"]) for run in (eager, fused) if run)
        times = [microseconds(runs.get(mode)) for mode in modes]
        lines.append("| " + " | ".join([work] + times + [launches, ratio(fused, eager), last[1](runs)]) + " |")
    return "\n".join(lines)


def of_copy(runs):
    fraction = runs["fused"]["fraction_of_copy"] if "fused" in runs else None
    return f"{fraction:.3f}" if fraction else ""


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "bench/results"
    alone, beside = {}, {}
    for name in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(name) as file:
            content = json.load(file)
        where = f"{content['device']['name']}, {content['date'][:10]}"
        has_peers = "torch" in content
        group = (beside if has_peers else alone).setdefault(where + (f", PyTorch {content['torch']}" if has_peers else ""), {})
        for run in content["runs"]:
            group.setdefault(f"{run['work']}, {run['element']}", {})[run["mode"]] = run
    modes = ["eager", "fused", "replay"]
    for where, works in alone.items():
        print(f"\n{where}:\n\n" + table(works.items(), modes, ("fused, of copy", of_copy)))
    for where, works in beside.items():
        print(f"\n{where}, in one call:\n\n" + table(works.items(), modes + ["torch eager", "torch graph"], (
            "replay / torch graph", lambda runs: ratio(runs.get("replay"), runs.get("torch graph")))))


if __name__ == "__main__":
    main()
