#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of the README from the results of kfuse-bench and bench/peers/compare.py.

    python3 bench/tables.py bench/results
"""
import glob
import json
import os
import sys

OURS = ["eager", "fused", "replay"]


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


def shape_text(shape):
    """"16384 x 4096" where rows and columns are all there is, and names otherwise."""
    if list(shape) == ["rows", "columns"]:
        return f"{shape['rows']} x {shape['columns']}"
    return ", ".join(f"{name} {value}" for name, value in shape.items())


def judged(modes):
    """Of the runs of one operator the one that its bar is about, or the fused one."""
    with_bar = [run for run in modes.values() if run.get("bar")]
    return with_bar[0] if with_bar else modes.get("fused") or modes.get("replay")


def fraction_text(run):
    of_read, of_copy = run.get("fraction_of_read"), run.get("fraction_of_copy")
    return f"{of_read:.3f} of a read" if of_read and run.get("bar_of") != "copy" else f"{of_copy:.3f}" if of_copy else ""


def bar_text(run):
    if not run.get("bar"):
        return ""
    return f"{run['bar'] * 1e6:.2f} us" if run["bar_of"] == "seconds" else f"{run['bar']:.3f}"


def operator_line(modes):
    run = judged(modes)
    peers = [other for mode, other in modes.items() if mode not in OURS and other["median_seconds"]]
    best = min(peers, key=lambda other: other["median_seconds"], default=None)
    verdict = run.get("verdict") or ""
    if verdict and best and run["median_seconds"] and run["median_seconds"] > best["median_seconds"]:
        verdict += "; the best peer is faster"
    return [run["work"].removeprefix("op/"), shape_text(run["shape"]), run["element"], microseconds(run) or "failed",
            fraction_text(run), bar_text(run), verdict,
            f"{microseconds(best)} ({best['mode']})" if best else "", ratio(run, best) if run["median_seconds"] else ""]


def operator_table(works):
    """works: for each piece of work its runs by mode."""
    lines = [operator_line(modes) for modes in works if judged(modes)]
    heads = ["operator", "shape", "element", "kfuse", "of copy", "bar", "verdict", "best peer", "kfuse / peer"]
    if not any(line[-1] for line in lines):
        heads, lines = heads[:-2], [line[:-2] for line in lines]
    head, *rest = ["| " + " | ".join(cells) + " |" for cells in (heads, *lines)]
    return "\n".join([head, "|" + "---|" * len(heads), *rest])


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "bench/results"
    alone, beside, operators = {}, {}, {}
    for name in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(name) as file:
            content = json.load(file)
        has_peers = "torch" in content
        where = f"{content['device']['name']}, {content['date'][:10]}"
        where += f", PyTorch {content['torch']}" if has_peers else ""
        for run in content["runs"]:
            if run["work"].startswith("op/"):
                group, key = operators, (run["work"], json.dumps(run["shape"]), run["element"])
            else:
                group, key = beside if has_peers else alone, f"{run['work']}, {run['element']}"
            group.setdefault(where, {}).setdefault(key, {})[run["mode"]] = run
    for where, works in operators.items():
        print(f"\n{where}:\n\n" + operator_table(works.values()))
    for where, works in alone.items():
        print(f"\n{where}:\n\n" + table(works.items(), OURS, ("fused, of copy", of_copy)))
    for where, works in beside.items():
        print(f"\n{where}, in one call:\n\n" + table(works.items(), OURS + ["torch eager", "torch graph"], (
            "replay / torch graph", lambda runs: ratio(runs.get("replay"), runs.get("torch graph")))))


if __name__ == "__main__":
    main()
