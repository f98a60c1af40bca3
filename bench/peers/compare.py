#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kfuse and PyTorch on the same layers or operators, the same card and in turns: times, ratios, date and card.

    python3 bench/peers/compare.py --bench build/cuda/bench/kfuse-bench --json bench/results/torch_h200.json
    python3 bench/peers/compare.py --ops --json bench/results/torch_h200_ops.json
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


def call(command, json_file, codes=(0,)):
    """Runs a program that leaves its results in a file, and returns them; ends where its exit code is not one of these."""
    done = subprocess.run(command + ["--json", json_file], stdout=subprocess.PIPE, text=True)
    if done.returncode not in codes:
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


def middle(runs):
    """Of the runs of several rounds the one in the middle, as it was found; of two the faster."""
    return sorted(runs, key=lambda run: run["median_seconds"])[(len(runs) - 1) // 2]


def by_work(rounds):
    """{(work, shape): {mode: its run}} of timed runs, in the order in which they were found."""
    result = {}
    for found in rounds:
        for run in found["runs"]:
            if run["median_seconds"]:
                modes = result.setdefault((run["work"], json.dumps(run["shape"])), {})
                modes.setdefault(run["mode"], []).append(run)
    return {key: {mode: middle(runs) for mode, runs in modes.items()} for key, modes in result.items()}


def ratio_of(ours, theirs):
    """What the operator takes, by the best peer. A time that is judged replayed is compared so."""
    mode = "replay" if ours.get("replay", {}).get("bar") or "fused" not in ours else "fused"
    peer = min(theirs.values(), key=lambda run: run["median_seconds"])
    run = ours[mode]
    return {**{key: run[key] for key in ("work", "element", "shape", "mode")}, "peer": peer["mode"],
            "ratio": run["median_seconds"] / peer["median_seconds"]}


def compare_operators(a):
    """Every operator at the shapes of its bars, and PyTorch at the same shapes, in turns."""
    peer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_ops.py")
    common = ["--element", a.element, "--cadence", a.cadence]
    wanted = a.works.split(",") if a.works else []
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        our_file, their_file = (os.path.join(folder, name) for name in ("kfuse.json", "torch.json"))
        for number in range(a.rounds):
            command = [a.bench, "op", "--all", *wanted, "--modes", "fused,replay"] + common
            ours.append(call(command, our_file, codes=(0, 3)))  # what is wrong is not timed, and the rest is there
            ways = [] if number == 0 and a.compile is None else ["--compile", a.compile if number == 0 else ""]
            theirs.append(call([sys.executable, peer, "--like", our_file] + common + ways, their_file))
    result = {key: ours[0][key] for key in ("kfuse", "date", "cadence", "device")}
    result |= {key: theirs[0][key] for key in ("torch", "liger")}
    wrong = [{**{key: run[key] for key in ("work", "shape", "mode")}, "reason": run["error"]}
             for run in ours[0]["runs"] if run["error"]]
    result |= {"runs": [], "ratios": [], "skipped": wrong + ours[0]["skipped"] + theirs[0]["skipped"]}
    peers = by_work(theirs)
    for key, runs in by_work(ours).items():
        beside = peers.get(key, {})
        result["runs"] += [*runs.values(), *beside.values()]
        if beside:
            result["ratios"].append(ratio_of(runs, beside))
            print("{work} {shape}: {mode} / {peer}: {ratio:.3f}".format(**result["ratios"][-1]), flush=True)
        else:
            print(f"{key[0]} {key[1]}: no peer", flush=True)
    return result


def compare_layers(a):
    """The layers of WORKS, in turns with PyTorch's."""
    wanted = a.works.split(",") if a.works else [f"{model}/{phase}" for model, phase, _ in WORKS]
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
    return result


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/cuda/bench/kfuse-bench", help="the program")
    parser.add_argument("--ops", action="store_true", help="operators instead of layers")
    parser.add_argument("--works", help="model/phase, or names of operators, with commas; by itself all")
    parser.add_argument("--element", default="bf16")
    parser.add_argument("--cadence", default="cold")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--compile", help="as of torch_layer.py or torch_ops.py")
    parser.add_argument("--json")
    a = parser.parse_args()
    known = {f"{model}/{phase}" for model, phase, _ in WORKS}
    unknown = set() if a.ops or not a.works else set(a.works.split(",")) - known
    if unknown:
        parser.error(f"--works: there is no {', '.join(sorted(unknown))}")
    return a


def main():
    a = parse_arguments()
    result = compare_operators(a) if a.ops else compare_layers(a)
    if a.json:
        with open(a.json + ".part", "w") as out:
            json.dump(result, out, indent=2)
            out.write("\n")
        os.replace(a.json + ".part", a.json)


if __name__ == "__main__":
    main()
