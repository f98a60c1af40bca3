#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layers of kfuse-bench in PyTorch: eager, eager in a CUDA graph, and compiled (best of several ways).

Timed as kfuse-bench does: the cache is emptied by reading before each repetition, two marks on the stream around the
work, repetitions given to the device without waiting between them. The JSON has the fields of kfuse-bench's.

    python3 bench/peers/torch_layer.py --model llama-3-8b --phase decode --layers 4 --json torch.json
"""
import argparse
import datetime
import json
import statistics
import sys
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Config:
    family: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    epsilon: float


MODELS = {
    "llama-3-8b": Config("llama", 4096, 32, 8, 128, 14336, 1e-5),
    "llama-3.2-1b": Config("llama", 2048, 32, 8, 64, 8192, 1e-5),
    "bert-base": Config("bert", 768, 12, 12, 64, 3072, 1e-12),
    "minilm": Config("bert", 384, 12, 12, 32, 1536, 1e-12),
}
ELEMENTS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Layer:
    """Weights and past keys and values of one layer. Projections that share their input are one product."""

    def __init__(self, config, batch, context, dtype):
        def matrix(rows, columns):
            return torch.randn(rows, columns, device="cuda", dtype=dtype) / columns**0.5

        def vector(size, middle):
            return torch.full((size,), middle, device="cuda", dtype=dtype)

        c = config
        queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
        inner = c.intermediate * (2 if c.family == "llama" else 1)
        self.qkv, self.out = matrix(queries + 2 * keys, c.hidden), matrix(c.hidden, queries)
        self.up, self.down = matrix(inner, c.hidden), matrix(c.hidden, c.intermediate)
        self.norm1, self.norm2 = vector(c.hidden, 1.0), vector(c.hidden, 1.0)
        if c.family == "bert":
            self.qkv_bias, self.out_bias = vector(queries + 2 * keys, 0.0), vector(c.hidden, 0.0)
            self.up_bias, self.down_bias = vector(inner, 0.0), vector(c.hidden, 0.0)
            self.norm1_bias, self.norm2_bias = vector(c.hidden, 0.0), vector(c.hidden, 0.0)
        self.keys = torch.randn(batch, c.kv_heads, context, c.head_dim, device="cuda", dtype=dtype)
        self.values = torch.randn_like(self.keys)


def rotate(x, cosines, sines):
    a, b = x.chunk(2, -1)
    return x * cosines + torch.cat((-b, a), -1) * sines


def attention(config, layer, qkv, place):
    """qkv: [batch, tokens, Q | K | V]. With past tokens, keys and values go through the cache."""
    c = config
    batch, tokens, _ = qkv.shape
    q, k, v = qkv.split([c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim], -1)
    q = q.view(batch, tokens, c.heads, c.head_dim).transpose(1, 2)
    k = k.view(batch, tokens, c.kv_heads, c.head_dim).transpose(1, 2)
    v = v.view(batch, tokens, c.kv_heads, c.head_dim).transpose(1, 2)
    if c.family == "llama":
        q, k = rotate(q, place.cosines, place.sines), rotate(k, place.cosines, place.sines)
    if place.has_past:
        layer.keys.index_copy_(2, place.positions, k)
        layer.values.index_copy_(2, place.positions, v)
        k, v = layer.keys, layer.values
    causal = c.family == "llama" and tokens > 1
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=c.heads != c.kv_heads)
    return mixed.transpose(1, 2).reshape(batch, tokens, -1)


def llama_layer(config, w, x, place):
    width = (config.hidden,)
    normed = F.rms_norm(x, width, w.norm1, config.epsilon)
    x = x + F.linear(attention(config, w, F.linear(normed, w.qkv), place), w.out)
    gate, up = F.linear(F.rms_norm(x, width, w.norm2, config.epsilon), w.up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, w.down)


def bert_layer(config, w, x, place):
    width = (config.hidden,)
    mixed = attention(config, w, F.linear(x, w.qkv, w.qkv_bias), place)
    x = F.layer_norm(x + F.linear(mixed, w.out, w.out_bias), width, w.norm1, w.norm1_bias, config.epsilon)
    inner = F.gelu(F.linear(x, w.up, w.up_bias))
    return F.layer_norm(x + F.linear(inner, w.down, w.down_bias), width, w.norm2, w.norm2_bias, config.epsilon)


class Place:
    """Where the current tokens stand: the last `sequence` of `context`."""

    def __init__(self, config, sequence, context, dtype):
        self.has_past = context > sequence
        self.positions = torch.arange(context - sequence, context, device="cuda")
        angles = torch.outer(self.positions.float(), 500000.0 ** -torch.linspace(0, 1, config.head_dim // 2 + 1,
                                                                                device="cuda")[:-1])
        angles = torch.cat((angles, angles), -1)
        self.cosines, self.sines = angles.cos().to(dtype), angles.sin().to(dtype)


def graphed(work):
    """A function that replays work() from a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def measure(work, repeats, cold, flush):
    """Seconds of each repetition."""
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats + 5)]
    for start, stop in marks:
        if cold:
            torch.sum(flush, dim=0, out=measure.sum)
        start.record()
        work()
        stop.record()
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(stop) * 1e-3 for start, stop in marks[5:])


def compiled_ways(step, wanted):
    """(name, function) for each way of compiling that works."""
    for mode in wanted:
        torch._dynamo.reset()
        try:
            compiled = torch.compile(step, mode=mode, dynamic=False, fullgraph=True)
            for _ in range(3):
                compiled()
            yield mode, compiled
            yield mode + " + graph", graphed(compiled)
        except Exception as problem:  # a way that does not work is no peer, but must be seen
            print(f"torch.compile, {mode}: {str(problem).splitlines()[0][:120]}", file=sys.stderr)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="llama-3.2-1b")
    parser.add_argument("--phase", choices=["decode", "prefill"], default="decode")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, help="by itself 1, or 2048 in prefill")
    parser.add_argument("--context", type=int, help="by itself 1024, or --sequence in prefill")
    parser.add_argument("--layers", type=int, default=1, help="with weights of their own; figures are for one")
    parser.add_argument("--element", choices=ELEMENTS, default="bf16")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--cadence", choices=["cold", "back-to-back"], default="cold")
    parser.add_argument("--compile", default="default,max-autotune-no-cudagraphs", help="modes, with commas; may be empty")
    parser.add_argument("--json")
    a = parser.parse_args()
    decode = a.phase == "decode"
    a.sequence = a.sequence or (1 if decode else 2048)
    a.context = a.context or (max(1024, a.sequence) if decode else a.sequence)
    if a.context < a.sequence:
        parser.error("--context must hold the tokens of --sequence")
    if a.context > a.sequence and a.sequence > 1:
        parser.error("several tokens after past ones are not in this script")
    return a


def main():
    a = parse_arguments()
    torch.manual_seed(0)
    config, dtype = MODELS[a.model], ELEMENTS[a.element]
    layers = [Layer(config, a.batch, a.context, dtype) for _ in range(a.layers)]
    place = Place(config, a.sequence, a.context, dtype)
    x = torch.randn(a.batch, a.sequence, config.hidden, device="cuda", dtype=dtype)
    function = llama_layer if config.family == "llama" else bert_layer

    def step():
        y = x
        for layer in layers:
            y = function(config, layer, y, place)
        return y

    properties = torch.cuda.get_device_properties(0)
    flush = torch.zeros(2 * properties.L2_cache_size // 4, device="cuda", dtype=torch.int32)
    measure.sum = torch.zeros((), device="cuda", dtype=torch.int64)
    shape = {"batch": a.batch, "sequence": a.sequence, "context": a.context, "layers": a.layers}

    def run(mode, work, note=None):
        times = [t / a.layers for t in measure(work, a.repeats, a.cadence == "cold", flush)]
        deciles = statistics.quantiles(times, n=10, method="inclusive")
        print(f"{mode:24} {statistics.median(times) * 1e6:10.2f} us   {note or ''}", flush=True)
        return {"work": f"layer/{a.model}/{a.phase}", "mode": mode, "element": a.element, "shape": shape,
                "median_seconds": statistics.median(times), "p10_seconds": deciles[0], "p90_seconds": deciles[-1],
                "note": note}

    with torch.no_grad():
        runs = [run("torch eager", step), run("torch graph", graphed(step))]
        ways = [run("torch compile", work, name) for name, work in compiled_ways(step, filter(None, a.compile.split(",")))]
    if ways:
        runs.append(min(ways, key=lambda way: way["median_seconds"]))
    if a.json:
        result = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                  "cadence": a.cadence, "torch": torch.__version__,
                  "device": {"name": properties.name, "space": "cuda"}, "runs": runs}
        with open(a.json, "w") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
