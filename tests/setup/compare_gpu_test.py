"""Tests the evaluation in compare_gpu.py, gpu_report.py and kernel_times.py with invented repetitions. The numbers give round results."""
import argparse
import json
import math
import sys
import tempfile
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/compare"))
import compare_gpu  # noqa: E402
import compare_gpu_goals as goals  # noqa: E402
import gpu_report  # noqa: E402
import gpu_smi  # noqa: E402
import kernel_times  # noqa: E402


def case(role, *seconds, first_loss=2.0, host=10e-6, busy=98.0, precision="fp32"):
    repetitions = [dict(seconds=s, loss=1 + s) for s in seconds]
    return dict(role=role, name=f"the {role}", precision=precision, first_loss=first_loss, repetitions=repetitions, host_seconds=host, busy=busy,
                memory_mb=500.0, clock_mhz=1980.0)


def result(model, *cases, epochs=1):
    return dict(model=model, epochs=epochs, rows_per_epoch=60_000, peak_tflops=800.0, cases=list(cases),
                notes=["one was left out"])


def values(found):
    return {(g["goal"], g["limit"]): (g["value"], g["met"]) for g in found}


class Goals(unittest.TestCase):
    def test_row(self):
        # 2 s for four epochs, once 8 s: medians, and half a second an epoch is 120,000 images/s.
        found = goals.row(result("resnet18", case("lockstep", 2, 2, 8), epochs=4), case("lockstep", 2, 2, 8))
        self.assertEqual(found["seconds_per_epoch"], 0.5)
        self.assertEqual(found["images_per_second"], 120_000)
        self.assertAlmostEqual(found["mfu"], 120_000 * 2.735e9 / 800e12)
        self.assertAlmostEqual(found["host_us"], 10)
        self.assertEqual(found["loss"], 9)  # of the last repetition
        self.assertEqual(found["times_lockstep"], 1)

    def test_ratios_are_paired_within_a_repetition(self):
        # A machine at half speed in repetition 2: the ratio of the medians is 4 / 2, within repetitions 3, 1, 3.
        lockstep, other = case("lockstep", 1, 4, 2), case("compile", 3, 4, 6)
        self.assertEqual(goals.paired(other, lockstep), 3)

    def test_resnet18(self):
        found = values(goals.judge(result(
            "resnet18", case("lockstep", .5, .5, host=20e-6, busy=None), case("tf32", .9, .9),
            case("compile", .65, .65), case("fast", .9, .9))))
        self.assertEqual(found["P1", .45], (.5, False))
        self.assertEqual(found["P2", 1.3], (1.3, True))
        self.assertEqual(found["P2", 2], (1.8, False))
        self.assertEqual(found["P3", .46][1], False)
        self.assertEqual(found["P4", .95], (.9, True))
        self.assertEqual(found["P7", 15], (20, False))
        self.assertEqual(found["P7", 97], (None, None))

    def test_lenet_and_a_rival_that_is_missing(self):
        found = values(goals.judge(result("lenet", case("lockstep", .04, .048), epochs=4)))
        self.assertEqual(found["P5", .012], (.011, True))
        self.assertIsNone(values(goals.judge(result("resnet18", case("lockstep", 1))))["P2", 1.3][1])

    def test_losses(self):
        def check(*losses, model="lenet"):
            return goals.loss_check(result(model, *(case("c", 1, first_loss=loss) for loss in losses)))["met"]

        self.assertTrue(check(2.302632, 2.302632 * (1 + 1.1e-6)))  # of two correct runs in fp32
        self.assertFalse(check(2.302632, 2.302632 * (1 + 5.8e-6)))  # of 2 % more learning rate
        self.assertTrue(check(.6, .65, model="resnet18"))
        self.assertFalse(check(.6, .9, model="resnet18"))
        self.assertFalse(check(2.3, math.nan))
        self.assertFalse(check(math.nan, 2.3))

    def test_losses_of_different_precisions_are_not_compared(self):
        def check(*cases):
            return goals.loss_check(result("lenet", *(case("c", 1, first_loss=loss, precision=precision)
                                                      for precision, loss in cases)))

        self.assertTrue(check(("fp32", 2.3), ("tf32", 2.4), ("fp32", 2.3))["met"])
        found = check(("fp32", 2.0), ("tf32", 1.0), ("tf32", 1.5), ("fp32", 2.0))
        self.assertEqual((found["difference"], found["met"]), (0.5, False))

    def test_tables(self):
        lines = list(goals.table(result("lenet", case("lockstep", .04, busy=None), case("eager", 1), epochs=4)))
        self.assertEqual(lines[2], "| the lockstep | 0.0100 | 0.0100 | 6,000,000 | 10.0% | 10.0 | - | 500 | 1980 | 1.04000 | "
                         "1.00 |")
        self.assertIn("| 25.00 |", lines[3])
        self.assertEqual(list(goals.goal_table([goals.goal("P9", "what", None, "<=", 5)]))[-1],
                         "| P9 | what | - | <= 5 | unknown |")


class FakeCase(compare_gpu.GpuCase):
    def __init__(self):
        super().__init__("the fake", "fp32", 1, [])
        self.versions = dict(warmup=dict(loss=2.0))

    def run(self, steps):
        self.repetitions.append(dict(seconds=1.0, loss=2.0))

    def ask(self, verb, count):
        return [dict(seconds=5e-6)]


class Comparison(unittest.TestCase):
    def test_results_are_known_while_it_runs(self):
        self.addCleanup(setattr, compare_gpu, "BUSY_SECONDS", compare_gpu.BUSY_SECONDS)
        compare_gpu.BUSY_SECONDS = 0
        args = argparse.Namespace(model="lenet", device="cpu", deadline=math.inf, repeat=4, steps=1, epochs=1, rows=1)
        comparison = compare_gpu.Comparison(args, stack=None)
        comparison.cases, comparison.memory = dict(lockstep=FakeCase()), dict(lockstep=None)
        comparison.smi.while_busy = lambda work: work() or (97.0, 1980.0)
        found = [(len(case["repetitions"]), case["host_seconds"], case["busy"], case["clock_mhz"], result["passed"])
                 for result in comparison.run(peak=1.0) for case in result["cases"]]
        self.assertEqual(found, [(2, None, None, None, True), (4, None, None, None, True), (4, 5e-6, 97, 1980, True)])

    def test_the_gpu_is_read_while_it_works(self):
        self.addCleanup(setattr, gpu_smi, "SETTLE_SECONDS", gpu_smi.SETTLE_SECONDS)
        gpu_smi.SETTLE_SECONDS = -1
        smi, begun = gpu_smi.Smi("cuda:0"), threading.Semaphore(0)
        smi.read = lambda: begun.release() or dict(busy=97, memory=512, clock=1980)
        self.assertEqual(smi.while_busy(lambda: [begun.acquire() for _ in range(2)]), (97, 1980))
        self.assertEqual(smi.memory(), 512)
        smi.read = lambda: None  # no nvidia-smi
        self.assertEqual((smi.while_busy(lambda: None), smi.memory()), ((None, None), None))


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name)

    def record(self, *lines):
        (self.path / "record").write_text("".join("\t".join(line) + "\n" for line in lines))
        (self.path / "log").write_text("under way\n7 tests: 0 failed, 1 skipped\n\n")

    def section(self, part):
        return gpu_report.make_section(part, self.path, "/nowhere")

    def test_steps(self):
        log = str(self.path / "log")
        self.record(("step", "a", "0", "1.5", "60", log, "do a"), ("cut", "b", "124", "60.1", "60", log, "do | b"),
                    ("step", "c", "124", "2.0", "60", log, "do c"), ("note", "left out"))
        found = self.section("test")
        self.assertFalse(found["passed"])
        self.assertEqual([step["cut_off"] for step in found["steps"]], [False, True, False])
        self.assertEqual(found["steps"][0]["last_line"], "7 tests: 0 failed, 1 skipped")
        text = "\n".join(gpu_report.section_lines("test", found))
        for part in ("cut off after 60 s", "exit code 124", "do \\| b", "left out", "## test: FAILED"):
            self.assertIn(part, text)

    def test_steps_that_were_not_run(self):
        log = str(self.path / "log")
        self.record(("step", "a", "0", "1.5", "60", log, "do a"), ("left", "b", "the time was used up"))
        found = self.section("lease")
        self.assertFalse(found["passed"])
        self.assertEqual(found["not_run"], [dict(name="b", why="the time was used up")])
        self.assertIn("not run: b (the time was used up)", "\n".join(gpu_report.section_lines("lease", found)))

    def test_a_step_that_was_cut_off_runs_again(self):
        log = str(self.path / "log")
        self.record(("cut", "a", "124", "60.1", "60", log, "do a"), ("left", "a", "the time was used up"),
                    ("step", "a", "0", "5.0", "60", log, "do a"))
        found = self.section("lease")
        self.assertEqual([(step["exit_code"], step["cut_off"]) for step in found["steps"]], [(0, False)])
        self.assertTrue(found["passed"])

    def test_nothing_was_run(self):
        self.record()
        self.assertFalse(self.section("build")["passed"])
        self.record(("note", "a build was brought along"))
        self.assertTrue(self.section("build")["passed"])

    def test_compare(self):
        log = str(self.path / "log")
        self.record(("step", "cold start lenet", "0", "1.75", "60", log, "c"),
                    ("step", "cold start resnet18", "1", "3.0", "60", log, "c"))
        made_up = result("lenet", case("lockstep", .04))
        made_up |= dict(goals=goals.judge(made_up), loss_check=goals.loss_check(made_up))
        (self.path / "compare-lenet.json").write_text(json.dumps(made_up))
        self.assertEqual(len(self.section("lease")["goals"]), 3)  # those of the comparison alone
        found = self.section("compare")
        self.assertEqual(values(found["goals"])["P6", 2], (1.75, True))
        self.assertEqual(values(found["goals"])["P6", 7], (None, None))
        text = "\n".join(gpu_report.section_lines("compare", found))
        for part in ("| the lockstep |", "one was left out", "| P5 |", "| P6 |", "800 TFLOP/s"):
            self.assertIn(part, text)

    def test_accuracy(self):
        self.record(("step", "a", "0", "1.5", "60", str(self.path / "log"), "do a"))
        for seed in range(5):
            events = [dict(event="epoch", test_accuracy=.1), dict(event="epoch", test_accuracy=.93 + seed / 1000),
                      dict(event="end", status="done")]
            (self.path / f"accuracy-resnet18-pytorch-{seed}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        found = self.section("accuracy")
        self.assertAlmostEqual(found["goals"][0]["value"], .932)
        self.assertTrue(found["goals"][0]["met"])
        self.assertIn("| mean | 0.9320 |", "\n".join(gpu_report.section_lines("accuracy", found)))
        (self.path / "accuracy-resnet18-pytorch-4.jsonl").write_text('{"event": "epoch", "test_accuracy": 0.9}')
        self.assertIsNone(self.section("accuracy")["goals"][0]["met"])  # it has no end, so there are but four
        (self.path / "accuracy-resnet18-pytorch-4.jsonl").write_text('{"event": "epoch", "te')  # it is being written
        self.assertEqual(len(self.section("accuracy")["accuracies"]["resnet18-pytorch"]), 4)

    def test_parts_are_joined(self):
        lockstep, other = self.path / "lockstep", self.path / "other"
        for folder, part, passed in ((lockstep, "build", True), (other, "build", False), (other, "test", True)):
            folder.mkdir(exist_ok=True)
            section = dict(facts=dict(gpu="G"), steps=[], not_run=[], notes=[], comparisons=[], accuracies={}, goals=[],
                           passed=passed)
            gpu_report.write(folder, gpu_report.read_parts(folder) | {part: section})
        gpu_report.write(lockstep, gpu_report.joined(lockstep, other))
        joined = json.loads((lockstep / "gpu_check.json").read_text())
        self.assertTrue(joined["passed"])
        self.assertEqual(list(joined["parts"]), ["build", "test"])


class KernelTimes(unittest.TestCase):
    def trace(self, *events):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "trace.json"
        path.write_text(json.dumps(dict(traceEvents=[
            dict(ph="X", cat=cat, name=name, ts=ts, dur=dur) for cat, name, ts, dur in events])))
        return kernel_times.kernels(path)

    def test_sums(self):
        # Two steps: convolutions of 10 and 20 us that overlap by 5, a gap of 15, and a short addition.
        events = self.trace(("kernel", "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<f> >()",
                             140, 4), ("kernel", "sm90_xmma_fprop", 100, 10), ("kernel", "sm90_xmma_fprop", 105, 20),
                            ("cpu_op", "aten::conv2d", 0, 1000))
        self.assertEqual(kernel_times.sums(events, kernel_times.group_of),
                         [("convolution", 30, 2), ("elementwise", 4, 1)])
        self.assertEqual([name for name, _, _ in kernel_times.sums(events, kernel_times.short_name)],
                         ["sm90_xmma_fprop", "at::native::vectorized_elementwise_kernel [CUDAFunctor_add]"])
        self.assertEqual(kernel_times.totals(events, steps=2),
                         "per step: 1.5 kernels and copies in 22.0 us, GPU busy 14.5 us, 0.5 gaps of 7.5 us; "
                         "0.5 of them below 5 us, 2.0 us")
        self.assertEqual(list(kernel_times.table([("name", 30, 2)], 2))[1], "     15.0     1.0    15.00  name")


if __name__ == "__main__":
    unittest.main()
