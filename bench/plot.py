#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the results of kfuse-bench: times.svg, a bar for each mode, and roofline.svg, in the folder they lie in.

    python3 bench/plot.py bench/results
"""
import glob
import json
import os
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of what to draw on)

# No dates or random names: the same results give the same pictures.
matplotlib.rcParams["svg.hashsalt"] = "kfuse"
COLOURS = {"eager": "#9aa5b1", "fused": "#3b82c4", "replay": "#1d4e89", "torch eager": "#f2c49b",
           "torch graph": "#e08e45", "torch compile": "#b3541e"}


def results(folder):
    """(device, run) for each run of the folder that has a time; of equal ones the last by file name and place."""
    found = {}
    files = sorted(glob.glob(os.path.join(folder, "*.json")))
    for name in files:
        with open(name) as file:
            content = json.load(file)
        for run in content.get("runs", []):
            if run.get("median_seconds"):
                device = content["device"]
                shape = json.dumps(run["shape"], sort_keys=True)
                key = (device["name"], run["work"], run["element"], shape, run["mode"])
                found[key] = (device, run)
    if not found:
        sys.exit(f"plot: no results in {folder} ({len(files)} JSON files); make some with kfuse-bench --json")
    return list(found.values())


def title(device, run):
    sizes = ", ".join(f"{name} {value}" for name, value in list(run["shape"].items())[:4])
    return f"{run['work']} ({run['element']}; {sizes})\n{device['name']}"


def draw_times(found, path):
    works = {}
    for device, run in found:
        works.setdefault(title(device, run), []).append(run)
    height = sum(len(runs) + 1.5 for runs in works.values())
    figure, axes = plt.subplots(len(works), 1, figsize=(8, 0.32 * height + 0.6), squeeze=False,
                                gridspec_kw={"height_ratios": [len(runs) + 0.5 for runs in works.values()]})
    for axis, (name, runs) in zip(axes[:, 0], works.items()):
        runs.sort(key=lambda run: list(COLOURS).index(run["mode"]) if run["mode"] in COLOURS else len(COLOURS))
        medians = [run["median_seconds"] * 1e6 for run in runs]
        below = [max(0, m - run["p10_seconds"] * 1e6) for m, run in zip(medians, runs)]
        above = [max(0, run["p90_seconds"] * 1e6 - m) for m, run in zip(medians, runs)]
        axis.barh([run["mode"] for run in runs], medians, xerr=[below, above],
                  color=[COLOURS.get(run["mode"], "#777777") for run in runs], error_kw={"elinewidth": 0.8})
        for place, (median, more) in enumerate(zip(medians, above)):
            axis.text(median + more, place, f"  {median:.4g} us", va="center", fontsize=8)
        axis.invert_yaxis()
        axis.set_title(name, fontsize=9, loc="left")
        axis.set_xlim(0, max(m + a for m, a in zip(medians, above)) * 1.2)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1, 0].set_xlabel("median time, microseconds (line: p10 to p90)", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def draw_roofline(found, path):
    figure, axis = plt.subplots(figsize=(8, 5))
    points = [(device, run, run["flops"] / run["bytes"], run["flops"] / run["median_seconds"])
              for device, run in found if run.get("flops") and run.get("bytes")]
    if not points:
        return False
    low, high = min(p[2] for p in points) / 2, max(p[2] for p in points) * 2
    roofs = []
    for device in {d["name"]: d for d, *_ in points}.values():
        if device.get("copy_bytes_per_second"):
            speed = device["copy_bytes_per_second"]
            axis.plot([low, high], [low * speed, high * speed], color="#444444", linewidth=1)
            roofs.append(f"a copy on {device['name']}: {speed * 1e-9:.4g} GB/s")
    names = sorted({p[1]["work"] for p in points})
    markers = "osD^vP*Xph<>d8"
    for device, run, intensity, speed in points:
        axis.scatter(intensity, speed, color=COLOURS.get(run["mode"], "#777777"), s=30,
                     marker=markers[names.index(run["work"]) % len(markers)])
    shown = [mode for mode in COLOURS if any(p[1]["mode"] == mode for p in points)]
    handles = [plt.Line2D([], [], color=COLOURS[mode], marker="s", linestyle="", label=mode) for mode in shown]
    handles += [plt.Line2D([], [], color="black", marker=markers[i % len(markers)], linestyle="", label=name, fillstyle="none")
                for i, name in enumerate(names)]
    axis.legend(handles=handles, fontsize=7, loc="lower right")
    axis.set_title("line: " + "; ".join(roofs), fontsize=8, loc="left")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("operations a byte, as the operators state them")
    axis.set_ylabel("operations a second")
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    return True


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit("usage: plot.py FOLDER (with JSON files of kfuse-bench)")
    found = results(sys.argv[1])
    for name, draw in (("times.svg", draw_times), ("roofline.svg", draw_roofline)):
        path = os.path.join(sys.argv[1], name)
        if draw(found, path) is not False:
            print(path)


if __name__ == "__main__":
    main()
