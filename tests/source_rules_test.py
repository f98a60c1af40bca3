#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule of source_rules.py finds what it is for, and leaves alone what is right."""
import pathlib
import tempfile
import unittest

import source_rules

GOOD_KERNEL = """
struct CopyKernel {
  static constexpr int threads = 128, registers = 32;
  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {}
};
"""


def rules_of(files, check):
    """The rules that a tree of these files breaks."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return {rule for _, _, rule, _ in check(folder)}


def found(name, text):
    return rules_of({name: text}, source_rules.findings)


class SourceRules(unittest.TestCase):
    def test_vendor(self):
        for line in ("#if defined(KOKKOS_ENABLE_CUDA)", "#ifdef __HIP_DEVICE_COMPILE__", "cudaStream_t stream;",
                     "hipStream_t stream;", "int i = threadIdx.x;", "#if defined(KOKKOS_ARCH_HOPPER90)",
                     "auto const name = is_h100();", 'asm volatile("nop;");', "__syncthreads();", "cuda::Lanes lanes;",
                     "float y = __shfl_xor(x, 1);", "constexpr int warp = 8;", "int half_warp = 1;", "if (is_cuda) return;",
                     "bool const use_hip = true;", "#ifdef __NVCC__", "if (chip == gfx942) return;"):
            self.assertEqual(found("fused/x.hpp", line), {"vendor"}, line)
            self.assertEqual(found("backends/host/x.hpp", line), set(), line)
        for line in ("// on CUDA and HIP, warps", '"cuda, hip or host"', "int ship = which;", "/* asm */ int x;",
                     "auto const relationship = 1;"):
            self.assertEqual(found("core/x.hpp", line), set(), line)

    def test_width(self):
        for line in ("int g = lanes.rank() / 32;", "bool first = lane % 64 == 0;", "constexpr int width = 32;",
                     "x = lanes.shuffle_xor(x, 32);", "y = lanes.broadcast(f(x), 31);", "int left = 64 - lanes.rank();",
                     "constexpr int lanes_of_group = 32;", "if (team.lanes_in_use > 63) return;", "int g = lanes.rank() >> 5;",
                     "int g = (lanes.rank() + 1) % 32;", "int g = team.team_rank() / 32;", "int n = lanes.size() / 64;",
                     "constexpr int groups = threads / 32;"):
            self.assertEqual(found("fused/x.hpp", line), {"width"}, line)
        for line in ("int g = lanes.rank() / Lanes::width;", "constexpr int threads = 64;", "Tile<Element, 64> tile;",
                     "constexpr int columns = 32;", "x = lanes.shuffle_xor(x, 1);"):
            self.assertEqual(found("fused/x.hpp", line), set(), line)

    def test_kernel(self):
        self.assertEqual(found("core/x.hpp", GOOD_KERNEL), set())
        for bound in ("threads = 128, ", ", registers = 32"):
            self.assertEqual(found("core/x.hpp", GOOD_KERNEL.replace(bound, "")), {"kernel"}, bound)
        derived = GOOD_KERNEL.replace("CopyKernel {", "CopyKernel final : Base {").replace(", registers = 32", "")
        self.assertEqual(found("core/x.hpp", derived), {"kernel"})
        for line in ('Kokkos::parallel_for("x", policy, kernel);', "Kokkos::TeamPolicy<Space> policy(1, 1);",
                     "auto f = KOKKOS_LAMBDA(int i) {};", "team.team_barrier();", "team.team_scratch(0);",
                     "team.team_reduce(Kokkos::Sum<float>(sum));"):
            self.assertEqual(found("models/x.hpp", line), {"kernel"}, line)

    def test_atomic(self):
        self.assertEqual(found("fused/x.hpp", "Kokkos::atomic_add(&sum, x);"), {"atomic"})
        self.assertEqual(found("core/x.hpp", "Memory<Kokkos::Atomic> m;"), {"atomic"})
        self.assertEqual(found("core/x.hpp", "std::atomic<int> last;"), set())

    def test_cure(self):
        for line in ('impl::check(ok, where, "the matrix is not as it must be");',
                     'check(ok(a, "("), "op", [&] { return "rows are " + text(n) + " and not (as needed)"; });'):
            self.assertEqual(found("fused/x.hpp", line), {"cure"}, line)
        for line in ('impl::check(ok, where, "the matrix is too small; give it " + text(n) + " rows");',
                     'check(same(a, b), "op", [&] { return "shape " + text(a) + " is not that of x (why); give it that"; });',
                     'check_vector(weight, where, "a name");', 'channels.check(where, "kfuse::batchnorm: y", n);',
                     'void check(std::string_view where = "the place where it is called") const;',
                     '// check(ok, "as one might write it in a comment")'):
            self.assertEqual(found("fused/x.hpp", line), set(), line)

    def test_lanes(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("fused/op.hpp", ""), ("fused/op_part.hpp", ""), ("tests/some_lanes.cpp", "")):
                path = pathlib.Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            self.assertEqual([str(p) for p, *_ in source_rules.operators_without_lanes(folder)], ["fused/op.hpp"])
            path.write_text("#include <kfuse/fused/op.hpp>")
            self.assertEqual(list(source_rules.operators_without_lanes(folder)), [])

    def test_rows(self):
        files = {"fused/op.hpp": "", "tests/op.cpp": 'for_random_cases("op", {}, f);', "tests/labels.cpp": "",
                 "tests/row_operator_list.hpp": 'list("op, masked", f);'}
        self.assertEqual(rules_of(files, source_rules.operators_without_rows), set())
        self.assertEqual(rules_of({**files, "tests/op.cpp": ""}, source_rules.operators_without_rows), {"rows"})
        files["tests/row_operator_list.hpp"] = 'list("op_2", f);'
        self.assertEqual(rules_of(files, source_rules.operators_without_rows), {"rows"})
        files["tests/labels.cpp"] = "{ kfuse::op(s, x); }"
        self.assertEqual(rules_of(files, source_rules.operators_without_rows), set())

    def test_readme(self):
        files = {"fused/op.hpp": "", "README.md": "| `op`, `step`, `other` | does | 1 |",
                 "fused/stage/step.hpp": "template <class T>\nauto step(T const& x) {\n}\nconstexpr Other<1> other() {\n}\n"
                                         "namespace impl {\nauto helper() {\n}\n}  // namespace impl\n"}
        self.assertEqual(rules_of(files, source_rules.not_in_readme), set())
        for name in ("op", "step", "other"):
            readme = files["README.md"].replace(f"`{name}`", name)
            self.assertEqual(rules_of({**files, "README.md": readme}, source_rules.not_in_readme), {"readme"}, name)

    def test_if(self):
        code = '#if defined(__CUDA_ARCH__)\n  asm volatile("nop;");\n#else\n  return 0;\n#endif\n'
        self.assertEqual(found("backends/cuda/x.hpp", code), set())
        removed = code.replace("#if defined(__CUDA_ARCH__)\n", "").replace("#else\n", "").replace("#endif\n", "")
        self.assertEqual(found("backends/cuda/x.hpp", removed), {"if"})
        self.assertEqual(found("backends/cuda/x.hpp", code.replace("defined", "!defined")), {"if"})
        for condition in ("#ifndef __CUDA_ARCH__", "#if 1 || defined(__CUDA_ARCH__)"):
            self.assertEqual(found("backends/cuda/x.hpp", code.replace("#if defined(__CUDA_ARCH__)", condition)), {"if"})
        amd = "#if defined(__HIP_DEVICE_COMPILE__)\n  return __shfl_xor(x, 1);\n#endif\n"
        self.assertEqual(found("backends/hip/x.hpp", amd), set())
        self.assertEqual(found("backends/hip/x.hpp", "return __shfl_xor(x, 1);"), {"if"})


if __name__ == "__main__":
    unittest.main()
