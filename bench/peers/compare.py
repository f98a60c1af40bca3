#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kfuse and PyTorch on the same layers, the same card and in turns: times, ratios, date and card.

    python3 bench/peers/compare.py --bench build/cuda/bench/kfuse-bench --json bench/results/torch_h200.json
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

# So many layers that their weights do not stay in the cache.
WORKS = [("llama-3-8b", "decode", 4), ("llama-3-8b", "prefill", 4), ("llama-3.2-1b", "decode", 8),
         ("llama-3.2-1b", "prefill", 8), ("minilm", "decode", 32), ("minilm", "prefill", 32)]
# What is set in relation: our mode by theirs; below one, ours is faster.
RATIOS = [("eager", "torch eager"), ("fused", "torch graph"), ("replay", "torch graph"), ("replay", "torch compile")]


def call(command, json_file):
    """Runs a program that leaves its results in a file, and returns them."""
    done = subprocess.run(command + ["--json", json_file], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"compare: {' '.join(command)} ended with {done.returncode}\n{done.stdout}")
    with open(json_file) as file:
        return json.load(file)


def merged(rounds):
    """One run for each mode: the medians of what several rounds found."""
    result = {}
    for found in rounds:
        for run in found["runs"]:
            result.setdefault(run["mode"], []).append(run)
    times = ["median_seconds", "p10_seconds", "p90_seconds"]
    return {mode: dict(runs[0], **{t: statistics.median(run[t] for run in runs) for t in times})
            for mode, runs in result.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/cuda/bench/kfuse-bench", help="the program")
    parser.add_argument("--works", help="model/phase, with commas; by itself all")
    parser.add_argument("--element", default="bf16")
    parser.add_argument("--cadence", default="cold")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--compile", help="as of torch_layer.py")
    parser.add_argument("--json")
    a = parser.parse_args()
    wanted = a.works.split(",") if a.works else [f"{model}/{phase}" for model, phase, _ in WORKS]
    unknown = set(wanted) - {f"{model}/{phase}" for model, phase, _ in WORKS}
    if unknown:
        parser.error(f"--works: there is no {', '.join(sorted(unknown))}")

    peer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_layer.py")
    result = {"runs": [], "ratios": []}
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "out.json")
        for model, phase, layers in WORKS:
            if f"{model}/{phase}" not in wanted:
                continue
            common = ["--model", model, "--phase", phase, "--layers", str(layers), "--element", a.element,
                      "--cadence", a.cadence]
            ours, theirs = [], []
            for number in range(a.rounds):
                ours.append(call([a.bench, "layer"] + common, file))
                # Compiling takes long, and its times do not differ more than the others': once is enough.
                ways = [] if number == 0 and a.compile is None else ["--compile", a.compile if number == 0 else ""]
                theirs.append(call([sys.executable, peer] + common + ways, file))
            for key in ("kfuse", "date", "cadence", "device"):
                result.setdefault(key, ours[0][key])
            result.setdefault("torch", theirs[0]["torch"])
            runs = {**merged(ours), **merged(theirs)}
            result["runs"] += runs.values()
            print(f"\nlayer/{model}/{phase}, {a.element}, {layers} layers, {result['device']['name']}")
            for mode, run in runs.items():
                print(f"  {mode:16} {run['median_seconds'] * 1e6:10.2f} us   {run.get('note') or ''}")
            for mode, peer_mode in RATIOS:
                if mode in runs and peer_mode in runs:
                    ratio = runs[mode]["median_seconds"] / runs[peer_mode]["median_seconds"]
                    result["ratios"].append({"work": f"layer/{model}/{phase}", "mode": mode, "peer": peer_mode,
                                             "ratio": ratio})
                    print(f"  {mode} / {peer_mode}: {ratio:.3f}", flush=True)
    if a.json:
        with open(a.json + ".part", "w") as out:
            json.dump(result, out, indent=2)
            out.write("\n")
        os.replace(a.json + ".part", a.json)


if __name__ == "__main__":
    main()
