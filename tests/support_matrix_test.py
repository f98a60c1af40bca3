#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""support_matrix.py takes for run what has passed, and nothing else."""
import pathlib
import re
import tempfile
import unittest

import support_matrix

CTEST_LOG = """
1/3 Testing: rmsnorm
1/3 Test: rmsnorm
Command: kfuse-tests
----------------------------------------------------------
Test Passed.
"rmsnorm" end time: now

2/3 Testing: softmax
2/3 Test: softmax
Command: kfuse-tests
Test Failed.

3/3 Testing: swiglu
3/3 Test: swiglu
Test Passed.
"""

CASE = """===============================================================================
tests/{file}.cpp:12:
TEST CASE:  it is right<{element}>

{error}0.1 s: it is right<{element}>
"""
SUMMARY = """===============================================================================
[doctest] test cases:   3 |   2 passed | 1 failed | 0 skipped
"""


class SupportMatrix(unittest.TestCase):
    def test_files_that_passed(self):
        self.assertEqual(support_matrix.passed_files(CTEST_LOG), {"rmsnorm", "swiglu"})

    def test_element_types_by_the_names_of_tests(self):
        found = [support_matrix.elements_of(f"a test{end}") for end in ("<double>", "<kfuse::bf16>", "", "<On<32>>")]
        self.assertEqual(found, [{"fp64"}, {"bf16"}, set(), set()])

    def test_random_cases_are_of_all_types_and_told_by_their_name(self):
        self.assertEqual(support_matrix.elements_of(f"rope {support_matrix.RANDOM}"), {"fp64", "fp32", "bf16", "fp16"})
        for path in (support_matrix.ROOT / "tests").glob("*.cpp"):
            calls = re.findall(r"^  (?:for|check)_random_cases\(\"", path.read_text(), re.M)
            self.assertEqual(path.read_text().count(support_matrix.RANDOM + '"'), len(calls), path)

    def test_a_record_leaves_out_what_failed(self):
        cases = [CASE.format(file=file, element=element, error=error) for file, element, error in
                 (("softmax", "float", ""), ("softmax", "double", "tests/softmax.cpp:14: ERROR: CHECK( x )\n"),
                  ("rmsnorm", "kfuse::fp16", ""))]
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "log")
            log.write_text("".join(cases) + SUMMARY)
            run = support_matrix.record(log, "cuda", "a card", "2026-01-01", "abc")
        self.assertEqual((run["passed"], run["failed"]), (2, 1))
        self.assertEqual((run["elements"]["softmax"], run["elements"]["rmsnorm"]), (["fp32"], ["fp16"]))
        self.assertNotIn("swiglu", run["elements"])

    def test_the_latest_run_of_an_operator_counts(self):
        def run(date, elements):
            return {"space": "cuda", "device": "a card", "date": date, "commit": "of " + date, "elements": elements}
        found = support_matrix.runs_elsewhere([run("2026-01-02", {"softmax": ["fp32"], "swiglu": []}),
                                               run("2026-01-01", {"softmax": ["fp64"], "swiglu": ["fp16"], "rope": ["bf16"]})])
        self.assertEqual(found, {"CUDA, run (a card, 2026-01-02, of 2026-01-02; 2026-01-01, of 2026-01-01)": {
            "softmax": ["fp32"], "swiglu": [], "rope": ["bf16"]}})

    def test_compiled_is_what_all_chips_of_a_vendor_have(self):
        for pattern in support_matrix.VENDORS.values():
            self.assertEqual(set(support_matrix.compiled(pattern)["rmsnorm"]), {"fp32", "bf16"})

    def test_parts_are_no_operators(self):
        self.assertIn("attention", support_matrix.operators())
        self.assertNotIn("attention_rows", support_matrix.operators())
        self.assertIn("rope_qkv", support_matrix.operators())


if __name__ == "__main__":
    unittest.main()
