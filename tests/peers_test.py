#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/peers and bench/tables.py do without PyTorch and without a card."""
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

BENCH = pathlib.Path(__file__).resolve().parent.parent / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "peers")]
sys.dont_write_bytecode = True

import compare  # noqa: E402
import tables  # noqa: E402
import torch_ops  # noqa: E402
import torch_works  # noqa: E402

# What has no peer here: layers have these, or PyTorch has them in no other form than another operator's.
WITHOUT_PEER = {"attention", "rope_qkv"}


def run(work, mode, seconds, **more):
    return {"work": f"op/{work}", "mode": mode, "element": "bf16", "shape": {"rows": 2, "columns": 3},
            "median_seconds": seconds, "error": None, **more}


OURS = {"kfuse": "1", "date": "2026-01-02T03:04:05Z", "cadence": "cold", "device": {"name": "a card"},
        "skipped": [], "runs": [
            run("rmsnorm", "fused", 10e-6, fraction_of_copy=0.95, bar=0.96, bar_of="copy", verdict="missed by 0.010"),
            run("rmsnorm", "replay", 11e-6, fraction_of_copy=0.9),
            run("softmax", "fused", None, error="y[0, 0] is 1, but should be 2")]}
THEIRS = {"torch": "9.9", "liger": False, "skipped": [], "runs": [
    run("rmsnorm", "torch eager", 20e-6), run("rmsnorm", "torch compile", 12.5e-6)]}


class Peers(unittest.TestCase):
    def test_without_torch_or_a_card_there_is_one_line(self):
        done = subprocess.run([sys.executable, BENCH / "peers/torch_ops.py"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1))
        self.assertTrue(done.stderr.startswith("torch_ops: PyTorch "))

    def test_every_operator_of_the_benchmark_has_a_peer(self):
        source = "".join(path.read_text() for path in BENCH.glob("*.cpp"))
        entries = set(re.findall(r'Register<[^;"]*?\w+\(\s*"(\w+)"', source))
        self.assertIn("rmsnorm", entries)
        self.assertEqual(entries - WITHOUT_PEER - set(torch_works.WORKS), set())

    @unittest.skipUnless("KFUSE_BENCH" in os.environ, "there is no kfuse-bench in this build")
    def test_works_have_the_sizes_that_the_benchmark_gives_them(self):
        text = subprocess.run([os.environ["KFUSE_BENCH"], "list"], capture_output=True, text=True, check=True).stdout
        lines = text.split("ops:\n")[1].splitlines()
        sizes = {name.split()[0]: [flag.replace("-", "_").strip("_") for flag in re.findall(r"--[a-z-]+", flags)]
                 for name, flags in zip(lines[::2], lines[1::2])}
        for name, work in torch_works.WORKS.items():
            with self.subTest(name):
                for shape in work.shapes:
                    self.assertEqual([size for size in shape if size != "calls"], sizes[name])

    def test_shapes_come_from_a_file_of_the_benchmark(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "kfuse.json")
            file.write_text(json.dumps(OURS))
            shapes = torch_ops.shapes_like(file)
        self.assertEqual(shapes, {"rmsnorm": [{"rows": 2, "columns": 3}], "softmax": [{"rows": 2, "columns": 3}]})
        self.assertEqual(torch_ops.chosen(shapes, ["softmax"]), [("softmax", {"rows": 2, "columns": 3})])
        self.assertEqual(torch_ops.chosen({"unknown": [{}]}, []), [])

    def test_every_work_runs_through_on_stand_ins(self):
        """No figure means anything here; names and numbers of arguments do."""
        torch = mock.MagicMock()
        torch.cuda.get_device_properties.return_value.L2_cache_size = 1 << 20
        liger = mock.MagicMock()
        liger.liger_rope.return_value = (mock.MagicMock(), mock.MagicMock())
        card = mock.MagicMock()
        card.seconds.side_effect = lambda step: (step(), [3.0, 1.0, 2.0])[1]
        arguments = mock.Mock(element="bf16", compile=["default"])
        with mock.patch.multiple(torch_ops, torch=torch, liger=liger, deviation=lambda *_: 0.0), \
                mock.patch.multiple(torch_works, torch=torch, F=torch.nn.functional), \
                contextlib.redirect_stdout(io.StringIO()):
            for name, work in torch_works.WORKS.items():
                for shape in work.shapes:
                    runs, skipped = torch_ops.runs_of(card, name, shape, arguments)
                    self.assertEqual(skipped, [])
                    self.assertEqual([run["mode"] for run in runs],
                                     ["torch eager", "torch compile"] + ["liger"] * bool(work.liger))
                    self.assertEqual(runs[0]["median_seconds"], 2.0 / shape.get("calls", 1))

    def test_of_several_rounds_the_middle_one_counts(self):
        runs = [run("rmsnorm", "fused", t) for t in (3.0, 1.0, 2.0)]
        self.assertEqual(compare.middle(runs)["median_seconds"], 2.0)
        self.assertEqual(compare.middle(runs[:2])["median_seconds"], 1.0)

    def test_the_ratio_is_to_the_best_peer(self):
        files = iter([OURS, THEIRS, OURS, THEIRS])
        arguments = mock.Mock(bench="kfuse-bench", element="bf16", cadence="cold", works="rmsnorm,softmax", rounds=2,
                              compile=None)
        with mock.patch.object(compare, "call", side_effect=lambda *_, **__: next(files)) as call, \
                contextlib.redirect_stdout(io.StringIO()):
            result = compare.compare_operators(arguments)
        self.assertEqual(call.call_args_list[0].args[0][:5], ["kfuse-bench", "op", "--all", "rmsnorm", "softmax"])
        self.assertNotIn("--compile", call.call_args_list[1].args[0])
        self.assertEqual(call.call_args_list[3].args[0][-2:], ["--compile", ""])  # compiled once
        (found,) = result["ratios"]
        self.assertEqual((found["mode"], found["peer"], round(found["ratio"], 6)), ("fused", "torch compile", 0.8))
        self.assertEqual([run["mode"] for run in result["runs"]], ["fused", "replay", "torch eager", "torch compile"])
        self.assertEqual(result["skipped"][0]["reason"], "y[0, 0] is 1, but should be 2")

    def test_a_time_that_is_judged_replayed_is_compared_so(self):
        ours = {"fused": run("rmsnorm", "fused", 5e-6), "replay": run("rmsnorm", "replay", 2e-6, bar=1.9e-6)}
        found = compare.ratio_of(ours, {"torch eager": run("rmsnorm", "torch eager", 4e-6)})
        self.assertEqual((found["mode"], found["ratio"]), ("replay", 0.5))

    def test_the_table_of_operators(self):
        modes = {each["mode"]: each for each in (*OURS["runs"][:2], *THEIRS["runs"])}
        reads = {"fused": run("argmax", "fused", 1e-6, fraction_of_copy=1.1, fraction_of_read=0.9, bar=0.9, bar_of="read",
                              verdict="reached")}
        failed = {"fused": OURS["runs"][2]}
        lines = tables.operator_table([modes, reads, failed]).split("\n")
        self.assertEqual(lines[2], "| rmsnorm | 2 x 3 | bf16 | 10.0 us | 0.950 | 0.960 | missed by 0.010 | "
                                   "12.5 us (torch compile) | 0.80 |")
        self.assertEqual(lines[3], "| argmax | 2 x 3 | bf16 | 1.0 us | 0.900 of a read | 0.900 | reached |  |  |")
        self.assertEqual(lines[4], "| softmax | 2 x 3 | bf16 | failed |  |  |  |  |  |")
        self.assertNotIn("best peer", tables.operator_table([reads]))
        of_copy = {"fused": {**reads["fused"], "bar_of": "copy"}}
        self.assertIn("| 1.0 us | 1.100 | 0.900 |", tables.operator_table([of_copy]))


if __name__ == "__main__":
    unittest.main()
