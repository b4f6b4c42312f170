"""Tests the scripts that compare lockstep with Python torch, or one device with two, with fake programs on both sides."""
import statistics
import unittest

from comparing import WithFakes


class Bench(WithFakes):
    """compare_bench.sh: a sum takes a second in lockstep and .25 s in Python, a product 1/3 s and .5 s, a step 10 and 40 ms."""

    def compare(self, code, *words, **fake):
        self.run_script(code, "compare_bench.sh", "--built", self.folder / "built", *words, **fake)

    def check_json(self):
        """Figures agree with each other, whatever they are."""
        result = self.result()
        for key in ("command", "lockstep", "torch", "cpu", "cores"):
            self.assertIn(key, result["environment"])
        for row in result["rows"]:
            self.assertEqual(row["unit"], "s")
            ratios = [a / b for a, b in zip(row["repetitions"]["lockstep"], row["repetitions"]["python"])]
            self.assertEqual(row["ratio"] and row["ratio"]["median"], statistics.median(ratios) if len(ratios) > 2 else None)
            for side in ("lockstep", "python"):
                self.assertEqual(row[side]["median"], statistics.median(row["repetitions"][side]))
        return result

    def test_figures(self):
        self.compare(0, "--bytes", 8, "--iterations", 6, "--repeat", 3, "--json", self.json)
        result = self.check_json()
        self.assertTrue(result["complete"])
        self.assertEqual({row["what"]: row["ratio"]["median"] for row in result["rows"]}, {
            "6 matrix products, 1000 x 1000, one replica": 2 / 3, "6 matrix products, 1000 x 1000 each, two replicas": 2 / 3,
            "sum of 8 B, Gloo on a core each": 4, "sum of 8 B, Gloo on any core": 4,
            "step of LeNet, 256 images, channels_last": .25, "step of LeNet, 256 images, contiguous": .25})
        self.assertEqual(set(result["python"]), {"1 process", "2 processes, kept", "2 processes, free",
                                                 "LeNet, channels_last", "LeNet, contiguous"})
        self.assertIn(" bench overlap --devices cpux2 --size 1000 --iterations 6 ", result["lockstep"]["overlap"])
        self.called(3, "lockstep bench allreduce")
        self.called(2, "--any-core")
        self.says("# of 6 measurements lockstep is faster in 4, Python in 2; 0 cannot be told apart", "compare_bench: OK")

    def test_sums_over_processes(self):
        self.compare(1, "--parts", "gloo", "--processes", 3, "--bytes", "8,32", "--repeat", 1, "--json", self.json, wrong=3)
        result = self.check_json()
        self.assertEqual([row["what"] for row in result["rows"]], [f"sum of {size} B, Python on {where}" for size in (8, 32)
                                                                   for where in ("a core each", "any core")])
        self.assertEqual([check["wire_bytes"] for check in result["checks"]], [99, 99])
        self.called(2, "lockstep launch -n 3 -- bench allreduce --devices cpu")
        self.called(6, "baseline_bench.py")
        self.says("check sums of 32 B: FAILED (3 wrong in lockstep, 0 in Python); a process of lockstep sends 99 B")

    def test_wrong_sums_and_failed_checks_fail(self):
        for fake, wrong, in_python in (dict(wrong=3), 9, 0), (dict(failed=True), 3, 0), (dict(python_wrong=1), 0, 12):
            self.compare(1, "--parts", "allreduce", "--bytes", 8, "--repeat", 3, "--overwrite", "--json", self.json, **fake)
            self.says(f"check sums of 8 B: FAILED ({wrong} wrong in lockstep, {in_python} in Python)", "compare_bench: FAILED")
            self.assertEqual(self.result()["checks"], [dict(what="sums of 8 B", lockstep=wrong, python=in_python,
                                                            wire_bytes=None, ok=False)])

    def test_a_signal_keeps_the_results_so_far(self):
        self.compare(143, "--parts", "allreduce", "--bytes", 8, "--repeat", 5, "--json", self.json,
                     ends=dict(run=3, code=-15))
        self.says("(stopped before the end)")
        self.assertFalse(self.check_json()["complete"])
        self.assertEqual([row["repetitions"]["lockstep"] for row in self.result()["rows"]], [[1, 1]] * 2)

    def test_a_command_that_fails_is_named(self):
        self.compare(1, "--parts", "allreduce", "--bytes", 8, ends=dict(run=3, code=5))
        self.says("error: lockstep bench allreduce ended with code 5")

    def test_refusals(self):
        self.json.write_text("kept")
        for code, words, said in ((7, ["--json", self.json], "exists, and --overwrite is not given"),
                                  (2, ["--parts", "matmuls,nonsense"], "knows matmuls, allreduce, gloo, step; got nonsense"),
                                  (2, ["--bytes", "8,10"], "takes whole floats of 4 bytes, got 10 bytes"),
                                  (2, ["--processes", 1], "must be at least 2, got 1"),
                                  (2, ["--repeat", 0], "must be at least 1, got 0")):
            self.compare(code, *words)
            self.says(said)
            self.called(0, "")
        self.assertEqual(self.json.read_text(), "kept")
        self.run_script(2, "compare_bench.sh", "--built")
        self.says("--built needs a folder", "scripts/compare_bench.sh [--built FOLDER] [ARG...]")
        (self.folder / "built/lockstep").unlink()
        self.compare(1)
        self.says("lockstep is missing")
        self.compare(77, python="/bin/false")
        self.says("skipped: no Python torch to compare with")


class Pytorch(WithFakes):
    """compare_pytorch.sh: a step takes 4 ms in lockstep and 40 ms in Python."""

    def compare(self, code, *words, **fake):
        return self.run_script(code, "compare_pytorch.sh", "--built", self.folder / "built", "--model", "lenet", "--precision",
                               "fp32", "--repeat", 1, "--json", self.json, "--overwrite", *words, **fake)

    def test_all_cases(self):
        page = self.folder / "page.md"
        printed = self.compare(0, "--markdown", page)
        self.says("LeNet, fp32, batch 256, lr 0.2, seed 0, 5 warm-up steps", "lockstep cpux2 direct", "Python DDP",
                  "not judged: fewer than 7 repetitions", "# 1 epoch of all rows", "is 10.00 times as fast as torch.compile")
        self.assertTrue(printed.endswith(page.read_text()))
        self.assertIn("| LeNet, fp32 | `cpu` | 4.00 (4.00 - 4.00) | ", page.read_text())
        setting, = self.result()["settings"]
        self.assertEqual(len(setting["cases"]), 10)
        self.assertEqual([run["seconds_per_epoch"] for run in setting["runs"]], [4.0, 4.0])
        self.called(2, "--world 2")
        self.called(1, "--compile fastest")

    def test_cases_that_compute_different_things_fail(self):
        self.compare(1, "--against", "eager", losses={"baseline_pytorch.py": 2.00001})
        self.says("FAILED")

    def test_a_case_that_cannot_run_is_left_out(self):
        self.compare(0, "--against", "eager,compile", skips="--compile")
        self.says("# torch.compile is left out: no compiler")
        self.called(0, "--world 2")

    def test_refusals(self):
        for code, words, said in ((2, ["--against", "eager,jax"], "knows eager, ddp, compile; got jax"),
                                  (2, ["--markdown", self.json], "--markdown and --json name the same file")):
            self.compare(code, *words)
            self.says(said)
            self.called(0, "")


class Gpu(WithFakes):
    """compare_gpu.py, whose GPU is the CPU and nvidia-smi a fake."""

    def compare(self, *words, **fake):
        (self.folder / "train-labels-idx1-ubyte").write_bytes(bytes(8 + 64))
        return self.run_script(0, "compare/compare_gpu.py", "--compare-case", self.folder / "built/scripts/compare_case",
                               "--device", "cpu", "--data", self.folder, "--model", "lenet", "--batch-size", 20, *words, **fake)

    def test_repetitions(self):
        self.edit("compare/compare_gpu.py", "BUSY_SECONDS = 3.0", "BUSY_SECONDS = 0.2")
        self.compare("--repeat", 2, "--compile-seconds", .5, "--json", self.json, cold="--compile")
        self.says("# torch.compile is left out: not warm after 1 s", "| DDP, world 1 |", "runs at 800.0 TFLOP/s")
        self.assertTrue(self.result()["passed"])
        self.assertEqual(len(self.result()["cases"]), 3)
        for case in self.result()["cases"]:
            self.assertEqual((len(case["repetitions"]), case["host_seconds"]), (2, 5e-6))
            self.assertEqual(case["memory_mb"], 0)
            self.assertEqual(case["commands"][0][case["commands"][0].index("--warmup") + 1], "4")  # one epoch

    def test_the_compile_cache_is_filled_alone(self):
        self.assertEqual(self.compare("--fill-compile-cache", "--seconds", .5, cold="--compile"),
                         "torch.compile is not warm after 1 s: its cache is incomplete\n")
        self.assertRegex(self.compare("--fill-compile-cache"), r"^torch.compile is warm after \d+ s\n$")
        self.called(1, "baseline_pytorch.py")
        self.called(0, "compare_case")


class OneAndTwo(WithFakes):
    """bench_1_vs_2.sh: an epoch takes 4 s on one device and 2.5 s on two."""

    def compare(self, code, *words, **fake):
        return self.run_script(code, "bench_1_vs_2.sh", "--built", self.folder / "built", *words, **fake)

    def test_cpu(self):
        self.compare(0)
        self.called(1, "--recipe lenet-scratch --scaling strong --batch-size 256 --lr 0.2 --devices cpu --devices cpux2 --json")
        self.called(1, "--recipe resnet18-pytorch --scaling weak --batch-size 256 --lr 0.1 --devices cpu --devices cpux2 "
                       "--repeat 3 --iterations 1")
        self.called(0, "--epochs")
        self.says("| LeNet | strong: batch 256, lr 0.2 -> batch 512, lr 0.2 | 4.00 | 2.50 | 1.60 x | 80 % | - |",
                  "Machine: A CPU, 2 cores, AVX512, 8.0 GiB memory.", "Checks: all 2 are OK.")

    def test_gpus(self):
        for gpus, words, devices in ((2, [], "--devices cuda:0 --devices cuda:0,cuda:1 --epochs 10"),
                                     (1, ["--epochs", 0, "--repeat", 7], "--devices cuda:0 --devices cuda:0x2 --repeat 7"),
                                     (0, ["--devices", "cuda:1 cuda:0,cuda:1"], "--devices cuda:1 --devices cuda:0,cuda:1")):
            self.compare(0, *words, gpus=gpus)
            self.called(2, devices)
            self.called(0, "--iterations")
            self.called(0 if gpus == 1 else 2, "--epochs")

    def test_a_failed_check(self):
        self.compare(1, "--json", self.json, failed=True)
        self.says("Checks: FAILED: LeNet, replicas: their weights differ; ResNet-18, replicas: their weights differ.")
        self.assertFalse(self.result()["ok"])

    def test_a_failed_command_writes_nothing(self):
        self.compare(8, "--json", self.json, "--markdown", self.folder / "table.md", ends=dict(run=1, code=8))
        self.called(1, "lockstep bench")
        self.assertFalse(self.json.exists() or (self.folder / "table.md").exists())

    def test_refusals(self):
        old = self.folder / "old"
        old.touch()
        for code, words, said in (
                (7, ["--json", old], f"--json {old} exists, and --overwrite is not given"),
                (7, ["--markdown", old], f"--markdown {old} exists, and --overwrite is not given"),
                (7, ["--markdown", self.folder / "none/a.md"], f"a folder that does not exist: {self.folder}/none"),
                (2, ["--markdown", self.json, "--json", self.json], "--markdown and --json name the same file"),
                (2, ["--devices", "cpu cpux3"], "must be one device and two, as in 'cpu cpux2', got 'cpu cpux3'"),
                (2, ["--devices", "cpu"], "must be one device and two"), (2, ["--repeat", 2], "must be at least 3, got 2"),
                (2, ["--epochs", -1], "must be at least 0, got -1")):
            self.compare(code, *words)
            self.says(said)
            self.called(0, "")
        self.assertFalse(old.stat().st_size or self.json.exists())
        self.compare(0, "--json", old, "--overwrite")
        self.assertTrue(old.stat().st_size)


if __name__ == "__main__":
    unittest.main()
