#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the checks in budgets.py: each fault, planted, is found, and nothing else. Compiles faulty_kernels.cu."""
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import budgets
import kernels
import read_code

HERE = pathlib.Path(__file__).resolve().parent
DESCRIPTION = HERE.parents[1] / "build/deps/device-code.json"
SKIPPED = 77
VERSIONS = {"nvcc": "1.2", "clang": "3.4"}


def compiled():
    """The kernels of faulty_kernels.cu, for one chip of each vendor."""
    tools = json.loads(DESCRIPTION.read_text())
    source = str(HERE / "faulty_kernels.cu")
    with tempfile.TemporaryDirectory() as folder:
        cuda, hip = f"{folder}/faulty.cuda.fatbin", f"{folder}/faulty.gfx942.co"
        subprocess.run([tools["nvcc"], "-std=c++20", "-O3", "-gencode", "arch=compute_80,code=sm_80", "-fatbin", source,
                        "-o", cuda], check=True)
        subprocess.run([tools["clang"], "-x", "hip", "-std=c++20", "-O3", "--offload-arch=gfx942", "--cuda-device-only",
                        f"--rocm-path={tools['hip']}", f"--rocm-device-lib-path={tools['bitcode']}",
                        "--no-gpu-bundle-output", "-include", "hip/hip_runtime.h", "-c", source, "-o", hip], check=True)
        return read_code.read_file(tools, cuda) + read_code.read_file(tools, hip)


class Rules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kernels = compiled()

    def faults(self, name):
        """Of the kernels with this name, by their chips."""
        found = {k.target: list(budgets.faults_of(k)) for k in self.kernels if k.functor.short_name.startswith(name)}
        self.assertEqual(set(found), {"sm_80", "gfx942"})
        return found.values()

    def assert_only(self, name, fault):
        for faults in self.faults(name):
            self.assertEqual(len(faults), 1, faults)
            self.assertIn(fault, faults[0])

    def test_a_sound_kernel_has_no_fault(self):
        for faults in self.faults("SoundKernel<float, 4, wide> of 2 stages"):
            self.assertEqual(faults, [])

    def test_a_kernel_that_spills_is_found(self):
        self.assert_only("SpillingKernel", "it spills")

    def test_a_wide_kernel_without_wide_accesses_is_found(self):
        for faults in self.faults("NarrowKernel<float, 4, wide>"):
            self.assertEqual([fault.split()[-1] for fault in faults], ["load", "store"])

    def test_packs_below_16_bytes_and_single_accesses_may_be_narrow(self):
        for name in ("NarrowKernel<float, 2, wide>", "NarrowKernel<float, 4, single>"):
            for faults in self.faults(name):
                self.assertEqual(faults, [])

    def test_a_fragment_kernel_without_matrix_instructions_is_found(self):
        tiles = [kernel for kernel in self.kernels if kernel.functor.struct == "TilesKernel"]
        self.assertEqual(len(tiles), 2 * 3)  # of each vendor's unit, for two chips
        for kernel in tiles:
            self.assertEqual(len(faults := list(budgets.faults_of(kernel))), 1, faults)
            self.assertIn("no matrix instruction", faults[0])

    def test_an_argument_that_is_too_large_is_found(self):
        self.assert_only("LargeKernel", "its argument takes 688 bytes")

    def test_an_occupancy_below_the_stated_one_is_found(self):
        self.assert_only("GreedyKernel", "fewer than the 8 it states")

    def test_a_kernel_whose_code_is_not_found_is_no_success(self):
        empty = dataclasses.replace(self.kernels[0], instructions=0)
        self.assertEqual(list(budgets.faults_of(empty)), ["no code was found"])


class Table(unittest.TestCase):
    def setUp(self):
        functor = kernels.Functor.parse("kfuse::impl::FlatKernel<float, 8, (kfuse::Access)0, kfuse::Chain<kfuse::Load<"
                                        "kfuse::bf16, void>, (anonymous namespace)::Own, kfuse::Store<kfuse::bf16>>>")
        self.kernels = [
            kernels.Kernel("op", target, functor, (256, 2), registers=32, spills=0, scalar_spills=0, stack=0, shared=0,
                           argument=100, wave=64, wide_loads=2, wide_stores=1, matrix=0, instructions=300)
            for target in kernels.CHIPS]
        self.table = budgets.table(self.kernels, VERSIONS)

    def check(self, committed, headers=frozenset({"op"}), sources=frozenset({"op"}), versions=None,
              known=frozenset()):
        return budgets.check(self.kernels, set(headers), set(sources), committed, versions or VERSIONS, set(known))

    def test_the_table_that_was_written_is_accepted(self):
        self.assertIn("op FlatKernel<bf16, 8, wide> of 3 stages\t32r ", self.table)
        self.assertEqual(self.check(self.table), ([], []))

    def test_a_changed_line_is_found(self):
        faults, _ = self.check(self.table.replace("32r", "31r", 1))
        self.assertIn("the table differs", faults[0])
        self.assertTrue(any(fault.startswith("-") and "31r" in fault for fault in faults))

    def test_a_missing_line_is_found(self):
        faults, _ = self.check("\n".join(line for line in self.table.splitlines() if not line.startswith("op")))
        self.assertIn("the table differs", faults[0])

    def test_other_compilers_are_not_held_to_the_table_but_to_the_rules(self):
        self.kernels[0] = dataclasses.replace(self.kernels[0], stack=8)
        faults, remarks = self.check(self.table, versions=VERSIONS | {"nvcc": "9"})
        self.assertEqual(len(faults), 1)
        self.assertIn("on sm_80: it spills", faults[0])
        self.assertIn("not compared", remarks[0])

    def test_a_spill_that_is_known_may_stay_until_it_is_gone(self):
        known = {("op FlatKernel<bf16, 8, wide> of 3 stages", "sm_80")}
        sound, self.kernels[0] = self.kernels[0], dataclasses.replace(self.kernels[0], stack=8)
        self.assertEqual(self.check(budgets.table(self.kernels, VERSIONS), known=known), ([], []))
        self.kernels[0] = sound
        faults, _ = self.check(self.table, known=known)
        self.assertIn("spills no more", faults[0])

    def test_an_operator_without_a_file_is_found(self):
        faults, _ = self.check(self.table, headers={"op", "op_part", "other"})
        self.assertEqual(faults, ["fused/other.hpp has no tests/device_code/other.cpp"])

    def test_an_operator_without_kernels_for_a_chip_is_found(self):
        self.kernels = [kernel for kernel in self.kernels if kernel.target != "gfx942"]
        faults, _ = self.check(budgets.table(self.kernels, VERSIONS))
        self.assertEqual(faults, ["op: no kernel was found for gfx942"])

    def test_a_chip_without_fragments_is_found_where_others_have_some(self):
        tiles = kernels.Functor.parse("TilesKernel<kfuse::hip::MfmaUnit<Own>, float>")
        self.kernels += [dataclasses.replace(kernel, functor=tiles, matrix=1) for kernel in self.kernels[1:]]
        faults, _ = self.check(budgets.table(self.kernels, VERSIONS))
        self.assertEqual(faults, ["no kernel over matrix instructions was found for sm_80"])

    def test_two_kernels_under_one_name_are_refused(self):
        self.kernels.append(dataclasses.replace(self.kernels[0], registers=40))
        with self.assertRaises(ValueError):
            self.check(self.table)


if __name__ == "__main__":
    if not DESCRIPTION.exists():
        print("skipped: there are no compilers for GPUs, see device_code_compile")
        sys.exit(SKIPPED)
    unittest.main()
