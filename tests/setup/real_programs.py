"""real_programs.py BUILD [TEST...]: runs the comparisons at tiny sizes with the programs of a build and with Python torch,
which comparisons_test.py replaces by fakes. Needs torch.

Importing torch takes seconds, and one run of all comparisons starts twenty Pythons that do so. So this process imports it
once. Each Python that a comparison starts is a fork of this process, which runs the script of its command line.
"""
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
import unittest
import warnings
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts/compare"
sys.path[:0] = [str(SCRIPTS), str(ROOT / "tests/models")]
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import baseline_bench  # noqa: E402
import compare_gpu  # noqa: E402
import torch  # noqa: E402
import torch.distributed.tensor  # noqa: E402, F401  (DistributedDataParallel imports it late)
import torch.nn.parallel.distributed  # noqa: E402, F401

import small_data  # noqa: E402

BUILD = Path()
FIRST_UNUSED = 3  # file descriptor
start_process = subprocess.Popen


def run_forked(command, before):
    """Runs the script of a command in this process, which a Popen has forked, and ends it."""
    code = 1
    try:
        if before:
            before()
        os.closerange(FIRST_UNUSED, 1024)  # Popen goes on once its pipe, which an exec would close, is closed
        sys.argv, sys.stdin = list(map(str, command[1:])), open(0, closefd=False)
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))
        importlib.import_module(Path(sys.argv[0]).stem).main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        traceback.print_exception(error)
    finally:
        sys.stdout.flush()
        os._exit(code)


def start_python_by_fork(command, *, preexec_fn=None, **more):
    """In place of subprocess.Popen: commands of this Python are forks of this process."""
    if command[0] == sys.executable:
        return start_process(command, preexec_fn=lambda: run_forked(command, preexec_fn), **more)
    return start_process(command, preexec_fn=preexec_fn, **more)


class RealPrograms(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.json = self.folder / "result.json"
        small_data.write(self.folder)

    def run_script(self, code, name, *words):
        """Runs a comparison, which must end with this code. Returns what it printed."""
        done = subprocess.run([sys.executable, SCRIPTS / name, *map(str, words)], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def test_bench(self):
        """Both sides are exact in every part."""
        said = self.run_script(0, "compare_bench.py", "--lockstep", BUILD / "lockstep", "--parts", "matmuls,allreduce,gloo,step",
                               "--repeat", 3, "--size", 40, "--iterations", 6, "--bytes", 4004, "--batch-size", 20,
                               "--steps", 2, "--data", self.folder, "--json", self.json)
        self.assertIn("compare_bench: OK", said)
        result = json.loads(self.json.read_text())
        self.assertEqual(len(result["rows"]), 2 + 2 + 2 + 2)
        self.assertTrue(all(min(sum(row["repetitions"].values(), [])) > 0 for row in result["rows"]))
        self.assertEqual(len(result["checks"]), 1 + 1 + 1)
        self.assertTrue(all(check["ok"] for check in result["checks"]))
        self.assertEqual(set(result["python"]), {"1 process", "2 processes, kept", "2 processes, free",
                                                 "LeNet, channels_last", "LeNet, contiguous"})
        steps = [row["repetitions"]["lockstep"] for row in result["rows"][-2:]]
        self.assertEqual(*steps)

    def test_training(self):
        """Every case of LeNet computes the same loss: without that the comparison fails."""
        self.run_script(0, "compare_pytorch.py", "--lockstep", BUILD / "lockstep", "--compare-case",
                        BUILD / "scripts/compare_case", "--model", "lenet", "--precision", "fp32", "--against", "eager,ddp",
                        "--repeat", 1, "--steps", 1, "--warmup", 1, "--batch-size", 16, "--data", self.folder, "--json",
                        self.json)
        setting, = json.loads(self.json.read_text())["settings"]
        self.assertEqual(len(setting["cases"]), 9)
        check, = setting["loss_checks"]
        self.assertTrue(check["met"], check)
        lockstep, python = setting["runs"]
        self.assertAlmostEqual(lockstep["train_loss"], python["train_loss"], 5)

    def test_networks_of_ones_own(self):
        """Every case of each computes the same losses, from the same weights on the same rows; also a program."""
        self.run_script(0, "compare_pytorch.py", "--lockstep", BUILD / "lockstep", "--compare-case",
                        BUILD / "scripts/compare_case", "--model", "mlp,cnn,gpt,program_gpt", "--precision", "fp32", "--against",
                        "eager,ddp", "--repeat", 1, "--steps", 2, "--warmup", 1, "--batch-size", 16, "--data", self.folder,
                        "--json", self.json)
        settings = json.loads(self.json.read_text())["settings"]
        self.assertEqual([setting["model"] for setting in settings], ["mlp", "cnn", "gpt", "program_gpt"])
        for setting in settings:
            program = setting["model"] == "program_gpt"
            self.assertEqual(len(setting["cases"]), 8 if program else 7)
            self.assertEqual(len(setting["loss_checks"]), 4 if program else 1)
            self.assertTrue(all(check["met"] for check in setting["loss_checks"]), setting["loss_checks"])

    def test_gpu_comparison(self):
        """On the CPU; torch.compile gets too little time."""
        self.enterContext(mock.patch.object(compare_gpu, "BUSY_SECONDS", 0.1))
        self.run_script(0, "compare_gpu.py", "--compare-case", BUILD / "scripts/compare_case", "--device", "cpu", "--data",
                        self.folder, "--model", "lenet", "--batch-size", 20, "--repeat", 2, "--peak-size", 64,
                        "--compile-seconds", 0, "--json", self.json)
        result = json.loads(self.json.read_text())
        self.assertTrue(result["passed"], result)
        self.assertEqual([case["role"] for case in result["cases"][:3]], ["lockstep", "eager", "ddp"])
        self.assertTrue(all(len(case["repetitions"]) == 2 for case in result["cases"]))

    def test_a_device_that_cannot_be_used(self):
        """The reason is the last line: torch's, or lockstep's."""
        compare = ["compare_gpu.py", "--compare-case", BUILD / "scripts/compare_case"]
        step = ["step_parity.py", "--lockstep", BUILD / "lockstep", "--batch-size", 16, "--seeds", 1]
        for words, reason in ((compare + ["--repeat", 2], r"^[A-Za-z.]*Error: .*(CUDA|NVIDIA)"),
                              (compare + ["--fill-compile-cache"], r"^[A-Za-z.]*Error: .*(CUDA|NVIDIA)"),
                              (step, "cuda:99 cannot be used: ")):
            said = self.run_script(1, *words, "--device", "cuda:99", "--data", self.folder, "--model", "lenet")
            self.assertRegex([line for line in said.splitlines() if not line.startswith("hint: ")][-1], reason)

    def test_one_step(self):
        """LeNet's step is as close to double as Python's. One in bfloat16 is not: torch's kernels, since lockstep's stay in
        fp32."""
        rounding = self.folder / "rounding"
        rounding.write_text('#!/bin/bash\n[[ " $* " == *" --precision "* ]] || set -- "$@" --precision bf16 --kernels torch\n'
                            f'exec {BUILD}/lockstep "$@"\n')
        rounding.chmod(0o755)
        for code, program in (0, BUILD / "lockstep"), (1, rounding):
            self.run_script(code, "step_parity.py", "--lockstep", program, "--device", "cpu", "--model", "lenet", "--data",
                            self.folder, "--batch-size", 16, "--seeds", 1)

    def test_a_trace_of_kernels(self):
        trace = self.folder / "trace.json"
        done = subprocess.run([BUILD / "scripts/compare_case", "--model", "lenet", "--precision", "fp32", "--devices", "cpu",
                               "--threads", "1", "--batch-size", "16", "--lr", "0.1", "--seed", "0", "--data", self.folder,
                               "--last-batch", "drop", "--warmup", "1", "--steps", "2", "--trace", trace], text=True,
                              stdout=subprocess.PIPE, check=True)
        self.assertRegex(done.stdout, r"^lenet fp32 on cpu: [\d.]+ us per step, [\d.]+ us with the profiler\n$")
        self.assertIn("trace.json has no kernels", self.run_script(1, "kernel_times.py", trace, "--steps", 2))

    def test_one_and_two(self):
        table = self.folder / "table.md"
        small_data.write(self.folder, t10k=20)
        words = ["--quick", "--devices", "cpu cpux2", "--epochs", 1, "--data", self.folder, "--markdown", table]
        done = subprocess.run([ROOT / "scripts/bench_1_vs_2.sh", "--built", BUILD, "--json", self.json, *map(str, words)],
                              stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE, check=True)
        self.assertEqual(done.stdout, table.read_text())
        for text in ("| model | setting | `cpu`, s/epoch | `cpux2`, s/epoch | speed-up | efficiency | test accuracy |",
                     "| LeNet | strong: batch 4, lr 0.2 -> batch 4, lr 0.2 |",
                     "| ResNet-18 | weak: batch 4, lr 0.1 -> batch 8, lr 0.2 |",
                     "(1 epoch) | PyTorch 3.0 s, 0.83 | PyTorch 2.8 s, 0.84 |",
                     "(1 epoch) | PyTorch 14.2 s, 0.89; MXNet 13.2 s, 0.93 | PyTorch 9.3 s, 0.81; MXNet 6.9 s, 0.91 |",
                     "its times say nothing", "Checks: all 3 are OK.", "Versions: lockstep "):
            self.assertIn(text, done.stdout)
        self.check_one_and_two(json.loads(self.json.read_text()))

    def check_one_and_two(self, result):
        self.assertEqual((result["format"], result["version"], result["ok"]), ("lockstep one vs two", 1, True))
        self.assertEqual(result["devices"], ["cpu", "cpux2"])
        self.assertGreater(result["environment"]["cores"], 0)
        self.assertEqual([(model["model"], model["setting"], model["batch_size"], model["lr"]) for model in result["models"]],
                         [("LeNet", "strong", [4, 4], [.2, .2]), ("ResNet-18", "weak", [4, 8], [.1, .2])])
        for model in result["models"]:
            one, two = model["one"], model["two"]
            self.assertEqual((one["replicas"], two["replicas"], one["repeats"], two["repeats"]), (1, 2, 3, 3))
            self.assertEqual(one["threads"], two["threads"])
            self.assertTrue(one["seconds_per_epoch"] > 0 and two["ms"] > 0 and model["exposed_sync"] >= 0, model)
            self.assertTrue(model["speedup"] > 0 and abs(model["efficiency"] - 50 * model["speedup"]) < 1e-6, model)
            for row in (one, two):  # of 20 images
                self.assertAlmostEqual(20 * row["accuracy"], round(20 * row["accuracy"]))


class Matmuls(unittest.TestCase):
    """The checks of baseline_bench.py find wrong results."""

    def test_right(self):
        matmuls = baseline_bench.Matmuls(6, seed=3)
        torch.manual_seed(3)
        self.assertTrue(torch.equal(matmuls.matrix, torch.rand(6, 6)))  # what lockstep draws
        self.assertEqual(matmuls.take(7)["wrong"], 0)
        self.assertEqual(matmuls.take(2)["wrong"], 0)  # two of four results are looked at

    def test_wrong(self):
        matmuls = baseline_bench.Matmuls(6, seed=3)
        self.assertEqual(matmuls.wrong(4), 4)  # none was computed
        with mock.patch("torch.mm", side_effect=lambda a, b, out: out.copy_(a @ b).mul_(1.001)):
            self.assertEqual(matmuls.take(4)["wrong"], 4)
        self.assertEqual(matmuls.take(4)["wrong"], 0)
        with mock.patch("torch.mm", side_effect=lambda a, b, out: None):
            self.assertEqual(matmuls.take(3)["wrong"], 3)  # results of before do not pass for new ones


class Sums(unittest.TestCase):
    def test_inputs(self):
        self.assertEqual(baseline_bench.input_of(0, 3).tolist(), [1, 2, 3])
        self.assertEqual(baseline_bench.input_of(1, 2).tolist(), [18, 19])
        self.assertEqual(baseline_bench.input_of(1, 252)[[233, 234, 251]].tolist(), [251, 1, 18])

    def test_wrong(self):
        other = torch.tensor([1., 2, 3, 4, 5])  # rank 0's
        for all_reduce, wrong in ((lambda tensor: tensor.add_(other), 0), (lambda tensor: None, 5),
                                  (lambda tensor: tensor.add_(other)[3].add_(1), 1)):
            with mock.patch.multiple("torch.distributed", get_world_size=lambda: 2, get_rank=lambda: 1, all_reduce=all_reduce):
                self.assertEqual(baseline_bench.wrong_elements(5), wrong)


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1))
    subprocess.Popen = start_python_by_fork
    unittest.main(warnings="ignore")
