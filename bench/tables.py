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


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "bench/results"
    for name in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(name) as file:
            content = json.load(file)
        works = {}
        for run in content["runs"]:
            works.setdefault((run["work"], run["element"], json.dumps(run["shape"])), {})[run["mode"]] = run
        device, date = content["device"]["name"], content["date"][:10]
        has_peers = any(mode.startswith("torch") for modes in works.values() for mode in modes)
        print(f"\n`{name}`: {device}, {date}" + (f", PyTorch {content['torch']}" if "torch" in content else ""))
        modes = ["eager", "fused", "replay"] + (["torch eager", "torch graph"] if has_peers else [])
        last = "replay / torch graph" if has_peers else "of copy (fused)"
        print("\n| work | " + " | ".join(modes) + f" | launches | fused / eager | {last} |")
        print("|---" * (len(modes) + 4) + "|")
        for (work, element, _), runs in works.items():
            eager, fused, replay = (runs.get(mode) for mode in ("eager", "fused", "replay"))
            launches = " -> ".join(str(run["launches"]) for run in (eager, fused) if run)
            if has_peers:
                final = ratio(replay, runs.get("torch graph"))
            else:
                final = f"{fused['fraction_of_copy']:.3f}" if fused and fused["fraction_of_copy"] else ""
            cells = [f"{work}, {element}"] + [microseconds(runs.get(mode)) for mode in modes]
            print("| " + " | ".join(cells + [launches, ratio(fused, eager), final]) + " |")


if __name__ == "__main__":
    main()
