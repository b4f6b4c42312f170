"""The parts of compare_bench.py: each measures one repetition on lockstep's side and on Python's."""
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

from compare_bench_rows import Check, Row, failed_checks, figures, sum_seconds
from compare_cases import HERE, Case

REPLICAS = 2
MEMORY_FORMATS = ["channels_last", "contiguous"]
WARMUP_STEPS = 4  # as in `lockstep bench step`
SUM_REPETITIONS = 5  # per repetition of lockstep; the same number as in baseline_bench.py


def fail(what):
    sys.exit(f"error: {what}")


class Bench:
    """Runs lockstep's side."""

    def __init__(self, program, seed, folder):
        self.program, self.seed, self.json = program, seed, Path(folder) / "bench.json"
        self.commands = {}  # the last one of each benchmark
        self.pythons = []  # idle meanwhile
        self.seconds = self.pythons_cpu_seconds = 0.0

    def run(self, name, *flags):
        """Runs a benchmark and returns its JSON."""
        self.json.unlink(missing_ok=True)
        command = [self.program, "bench", name, *map(str, flags), "--threads", "1", "--seed", str(self.seed)]
        self.commands[name] = shlex.join(command)
        before, start = self.pythons_used(), time.perf_counter()
        done = subprocess.run([*command, "--json", str(self.json)], stdout=subprocess.DEVNULL)
        self.seconds += time.perf_counter() - start
        self.pythons_cpu_seconds += self.pythons_used() - before
        result = self.json.read_text() if self.json.exists() else ""
        if done.returncode not in (0, 1) or not result:  # 1: a check has failed; the JSON says which
            fail(f"lockstep bench {name} ended with code {done.returncode}\n  {self.commands[name]}")
        return json.loads(result)

    def pythons_used(self):
        return sum(python.cpu_seconds() for python in self.pythons)


def make_pythons(args, folder):
    """Returns Python's cases by role: one process; two processes bound to a core each; two free ones; a training step in
    each memory format. folder: for the file through which processes find each other."""
    bench = [sys.executable, str(HERE / "baseline_bench.py"), "--size", str(args.size), "--seed", str(args.seed)]

    def two(role, *flags):
        return Case(f"2 processes, {role}", REPLICAS, 1,
                         [[*bench, "--world", str(REPLICAS), "--store", f"{folder}/{role}", "--rank", str(rank), *flags]
                          for rank in range(REPLICAS)])

    made = dict(one=Case("1 process", 1, 1, [bench]), kept=two("kept"), free=two("free", "--any-core"))
    for name in MEMORY_FORMATS:
        step = [sys.executable, str(HERE / "baseline_pytorch.py"), "--serve", *step_flags(args), "--threads", "1", "--seed",
                str(args.seed), "--last-batch", "drop", "--warmup", str(WARMUP_STEPS), "--memory-format", name]
        made[name] = Case(f"LeNet, {name}", 1, 1, [step])
    return made


def step_flags(args):
    return ["--model", "lenet", "--precision", "fp32", "--batch-size", str(args.batch_size), "--data", args.data]


class Matmuls:
    name, roles = "matmuls", ["one", "kept"]

    def __init__(self, args):
        self.args = args
        shape = f"{args.iterations} matrix products, {args.size} x {args.size}"
        self.rows = [Row(f"{shape}, one replica", "ms"), Row(f"{shape} each, two replicas", "ms")]
        self.checks = [Check("matrix products")]

    def measure(self, bench, pythons):
        count, check = self.args.iterations, self.checks[0]
        result = bench.run("overlap", "--devices", f"cpux{REPLICAS}", "--size", self.args.size, "--iterations", count,
                           "--repeat", 1)
        check.lockstep += failed_checks(result)
        for row, role, run in zip(self.rows, self.roles, ["cpu:0", "both at once"]):
            lockstep, = figures(result, "devices", ["seconds"], what=run)
            pythons[role].ask("matmuls", max(1, count // 10))  # warm-up
            answers = pythons[role].ask("matmuls", count)
            row.repetitions.append((lockstep, max(answer["seconds"] for answer in answers)))
            check.python += sum(answer["wrong"] for answer in answers)


class Allreduce:
    # Gloo has threads beside the one that waits: it depends on the size whether one core or any core is better.
    name, roles = "allreduce", ["kept", "free"]
    said = dict(kept="Gloo on a core each", free="Gloo on any core")

    def __init__(self, args):
        self.rows_of = {size: [Row(f"sum of {size:,} B, {self.said[role]}", "us") for role in self.roles]
                        for size in args.bytes}
        self.rows = [row for rows in self.rows_of.values() for row in rows]
        self.checks_of = {size: Check(f"sums of {size:,} B") for size in args.bytes}
        self.checks = list(self.checks_of.values())

    def measure(self, bench, pythons):
        for size, rows in self.rows_of.items():
            check = self.checks_of[size]
            result = bench.run("allreduce", "--devices", f"cpux{REPLICAS}", "--allreduce", "two_shot", "--min-bytes", size,
                               "--max-bytes", size, "--repeat", SUM_REPETITIONS, "--iterations", 1)
            us, wrong = figures(result, "allreduce", ["us", "wrong"], algorithm="two_shot", bytes=size)
            check.lockstep += wrong
            for row, role in zip(rows, self.roles):
                answers = pythons[role].ask("sums", size)
                row.repetitions.append((us / 1e6, sum_seconds([answer["repetitions"] for answer in answers])))
                check.python += sum(answer["wrong"] for answer in answers)


class Step:
    name, roles = "step", MEMORY_FORMATS

    def __init__(self, args):
        self.args = args
        self.rows = [Row(f"step of LeNet, {args.batch_size} images, {name}", "ms") for name in MEMORY_FORMATS]
        self.checks = []  # compare_pytorch.sh compares losses

    def measure(self, bench, pythons):
        steps = self.args.steps
        result = bench.run("step", "--devices", "cpu", *step_flags(self.args), "--iterations", steps, "--repeat", 1)
        lockstep, = figures(result, "step", ["ms"], devices="cpu", batch_size=self.args.batch_size)
        for row, role in zip(self.rows, self.roles):
            pythons[role].ask("run", WARMUP_STEPS)
            pythons[role].run(steps)
            row.repetitions.append((lockstep / 1e3, pythons[role].repetitions[-1]["seconds"] / steps))


PARTS = {part.name: part for part in (Matmuls, Allreduce, Step)}
