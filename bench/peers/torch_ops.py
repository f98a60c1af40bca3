#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operators of kfuse-bench in PyTorch: eager, compiled, and Liger's kernels where liger_kernel can be imported.

Each way is held against the eager formula in double, and is timed only if it is right. Timed as kfuse-bench does: the
cache is emptied by reading before each repetition, two marks on the stream around the work; a kernel that spins goes
before them, so that the time in which Python launches does not count. Shapes with `calls` are so many calls on memory of
their own, replayed from one CUDA graph; figures are for one. The JSON has the fields of kfuse-bench's.

    python3 bench/peers/torch_ops.py --works rmsnorm,swiglu --json torch.json
    python3 bench/peers/torch_ops.py --like kfuse.json --json torch.json      # the shapes of a file of kfuse-bench op --all
"""
import argparse
import datetime
import json
import statistics
import sys

from torch_works import WORKS

try:
    import torch
except ImportError:
    torch = None
try:
    import liger_kernel.transformers.functional as liger
except ImportError:
    liger = None

ELEMENTS = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
ALLOWED = {"fp64": 1e-12, "fp32": 1e-5, "bf16": 1e-2, "fp16": 2e-3}  # |result - definition| / |definition|, in norms
CHECKED_ROWS = 64
SPIN_CYCLES = 800_000  # about 0.4 ms


def shapes_like(file_name):
    """{work: [shape, ...]} of the runs in a file of kfuse-bench, each shape once."""
    with open(file_name) as file:
        runs = json.load(file)["runs"]
    shapes = {}
    for run in runs:
        of_work = shapes.setdefault(run["work"].removeprefix("op/"), [])
        if run["shape"] not in of_work:
            of_work.append(run["shape"])
    return shapes


def chosen(shapes, wanted):
    """(work, shape) of the works that PyTorch has here and that are wanted; empty: all."""
    return [(name, shape) for name in WORKS if name in shapes and (not wanted or name in wanted) for shape in shapes[name]]


def graphed(step):
    """A function that replays step() from a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    return lambda: (graph.replay(), results)


class Card:
    """Empties the cache, and times."""

    def __init__(self, cold, repeats):
        self.properties = torch.cuda.get_device_properties(0)
        self.cold, self.repeats = cold, repeats
        self.flush = torch.zeros(2 * self.properties.L2_cache_size // 4, device="cuda", dtype=torch.int32)
        self.sum = torch.zeros((), device="cuda", dtype=torch.int64)

    def seconds(self, step):
        marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
                 for _ in range(self.repeats + 5)]
        for start, stop in marks:
            if self.cold:
                torch.sum(self.flush, dim=0, out=self.sum)
            torch.cuda._sleep(SPIN_CYCLES)
            start.record()
            step()
            stop.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(stop) * 1e-3 for start, stop in marks[5:]]


def ways(work, compile_modes):
    """(mode, note, function of the inputs) for each way to do the work; functions return a tuple of results."""
    yield "torch eager", None, work.called(work.eager)
    for mode in compile_modes:
        torch._dynamo.reset()
        formula = torch.compile(work.formula or work.eager, mode=mode, dynamic=False, fullgraph=True)
        yield "torch compile", mode, work.called(formula)
    if liger and work.liger:
        yield "liger", None, work.called(lambda *inputs: work.liger(liger, *inputs))


def deviation(work, function, inputs):
    """Of the first rows, from the definition in double: in norms. Not a number counts as infinite."""
    results = function(*[t.clone() for t in inputs])  # some overwrite their inputs
    results = results if isinstance(results, tuple) else (results,)
    rows = [t[:CHECKED_ROWS] if i < work.rows else t for i, t in enumerate(inputs)]
    exact = [t.double() if t.is_floating_point() else t for t in rows]
    expected = work.called(work.definition or work.eager)(*exact)
    expected = expected if isinstance(expected, tuple) else (expected,)
    worst = 0.0
    for result, right in zip(results, expected):
        result = result[:CHECKED_ROWS]
        if work.compared:  # of indices, what they point to
            result, right = work.compared(exact, result), work.compared(exact, right)
        result = result.double()
        if work.dropped:
            kept = result != 0
            if abs(1 - float(kept.double().mean()) - work.dropped) > 0.02:
                return float("inf")
            result, right = result[kept] * (1 - work.dropped), right[kept]
        found = float((result - right).norm() / right.norm())
        worst = max(worst, found if found == found else float("inf"))
    return worst


def timed(card, work, function, inputs_of_calls):
    """Seconds for one call."""
    def step():
        return [function(*inputs) for inputs in inputs_of_calls]

    for _ in range(3):
        step()
    calls = len(inputs_of_calls)
    return [t / calls for t in card.seconds(step if calls == 1 else graphed(step))]


def runs_of(card, name, shape, arguments):
    """(runs, what was skipped and why) for one shape."""
    work, dtype = WORKS[name], getattr(torch, ELEMENTS[arguments.element])
    inputs_of_calls = [work.inputs(shape, dtype) for _ in range(shape.get("calls", 1))]
    runs, skipped = [], []
    for mode, note, function in ways(work, arguments.compile):
        base = {"work": f"op/{name}", "mode": mode, "element": arguments.element, "shape": shape}
        try:
            found = deviation(work, function, inputs_of_calls[0])
            if found > ALLOWED[arguments.element]:
                raise ValueError(f"wrong result: it deviates by {found:.2g}")
            times = timed(card, work, function, inputs_of_calls)
        except Exception as problem:  # a way that does not work is no peer, but must be seen
            reason = (str(problem).splitlines() or [type(problem).__name__])[0][:160]
            print(f"torch_ops: {mode}, {name} {shape}: {reason}", file=sys.stderr)
            skipped.append({**base, "reason": reason})
            continue
        deciles = statistics.quantiles(times, n=10, method="inclusive")
        runs.append({**base, "median_seconds": statistics.median(times), "p10_seconds": deciles[0],
                     "p90_seconds": deciles[-1], "max_deviation": found, "note": note})
        print(f"{name:28} {mode:14} {runs[-1]['median_seconds'] * 1e6:10.2f} us   {shape} {note or ''}", flush=True)
    return runs, skipped


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", default="", help="names, with commas; by itself all")
    parser.add_argument("--like", help="a file of kfuse-bench, whose shapes are taken; by itself those of the bars")
    parser.add_argument("--element", choices=ELEMENTS, default="bf16")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--cadence", choices=["cold", "back-to-back"], default="cold")
    parser.add_argument("--compile", default="default", help="modes of torch.compile, with commas; may be empty")
    parser.add_argument("--json")
    a = parser.parse_args()
    a.works, a.compile = (list(filter(None, text.split(","))) for text in (a.works, a.compile))
    unknown = [name for name in a.works if name not in WORKS]
    if unknown:
        parser.error(f"--works: there is no {', '.join(unknown)}; there is {', '.join(WORKS)}")
    return a


def main():
    a = parse_arguments()
    if torch is None:
        sys.exit("torch_ops: PyTorch is not installed for this Python; run it with one that has torch")
    if not torch.cuda.is_available():
        sys.exit("torch_ops: PyTorch finds no GPU here; this measures one")
    if liger is None:
        print("torch_ops: liger_kernel cannot be imported; its kernels are left out", file=sys.stderr)
    torch.manual_seed(0)
    card = Card(a.cadence == "cold", a.repeats)
    shapes = shapes_like(a.like) if a.like else {name: work.shapes for name, work in WORKS.items()}
    runs, skipped = [], []
    with torch.no_grad():
        for name, shape in chosen(shapes, a.works):
            more, left_out = runs_of(card, name, shape, a)
            runs += more
            skipped += left_out
            torch.cuda.empty_cache()
    if a.json:
        result = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                  "cadence": a.cadence, "torch": torch.__version__, "liger": liger is not None,
                  "device": {"name": card.properties.name, "space": "cuda"}, "runs": runs, "skipped": skipped}
        with open(a.json, "w") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
