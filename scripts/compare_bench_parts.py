"""The parts of compare_bench.py: what each measures in one turn, on lockstep's side and on Python's."""
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

from compare_bench_rows import Check, Row, failed_checks, figures, sum_seconds
from compare_contenders import HERE, Contender

REPLICAS = 2
MEMORY_FORMATS = ["channels_last", "contiguous"]
WARMUP_STEPS = 4  # as lockstep bench step takes
SUM_TURNS = 5  # of a turn of ours; baseline_bench.py takes as many


def fail(what):
    sys.exit(f"error: {what}")


class Bench:
    """lockstep's side."""

    def __init__(self, program, seed, folder):
        self.program, self.seed, self.json = program, seed, Path(folder) / "bench.json"
        self.commands = {}  # as they were run last, by benchmark
        self.rivals = []  # that are to be idle meanwhile
        self.seconds = self.rivals_cpu_seconds = 0.0

    def run(self, name, *flags):
        """The JSON of a fresh run."""
        self.json.unlink(missing_ok=True)
        command = [self.program, "bench", name, *map(str, flags), "--threads", "1", "--seed", str(self.seed)]
        self.commands[name] = shlex.join(command)
        before, start = self.rivals_used(), time.perf_counter()
        done = subprocess.run([*command, "--json", str(self.json)], stdout=subprocess.DEVNULL)
        self.seconds += time.perf_counter() - start
        self.rivals_cpu_seconds += self.rivals_used() - before
        result = self.json.read_text() if self.json.exists() else ""
        if done.returncode not in (0, 1) or not result:  # 1: a check of its own has failed, which its JSON holds
            fail(f"lockstep bench {name} ended with code {done.returncode}\n  {self.commands[name]}")
        return json.loads(result)

    def rivals_used(self):
        return sum(rival.cpu_seconds() for rival in self.rivals)


def make_pythons(args, folder):
    """Python's side, by role: one process, two of them that keep to a core each, two that leave their cores to the system,
    and a step in each memory format. folder: where processes meet."""
    bench = [sys.executable, str(HERE / "baseline_bench.py"), "--size", str(args.size), "--seed", str(args.seed)]

    def two(role, *flags):
        return Contender(f"2 processes, {role}", REPLICAS, 1,
                         [[*bench, "--world", str(REPLICAS), "--store", f"{folder}/{role}", "--rank", str(rank), *flags]
                          for rank in range(REPLICAS)])

    made = dict(one=Contender("1 process", 1, 1, [bench]), kept=two("kept"), free=two("free", "--any-core"))
    for name in MEMORY_FORMATS:
        step = [sys.executable, str(HERE / "baseline_pytorch.py"), "--turns", *step_flags(args), "--threads", "1", "--seed",
                str(args.seed), "--last-batch", "drop", "--warmup", str(WARMUP_STEPS), "--memory-format", name]
        made[name] = Contender(f"LeNet, {name}", 1, 1, [step])
    return made


def step_flags(args):
    return ["--model", "lenet", "--precision", "fp32", "--batch-size", str(args.batch_size), "--data", args.data]


class Products:
    name, roles = "products", ["one", "kept"]

    def __init__(self, args):
        self.args = args
        shape = f"{args.iterations} products of {args.size} x {args.size}"
        self.rows = [Row(f"{shape}, one replica", "ms"), Row(f"{shape} each, two replicas", "ms")]
        self.checks = [Check("products")]

    def turn(self, bench, pythons):
        count, check = self.args.iterations, self.checks[0]
        result = bench.run("overlap", "--devices", f"cpux{REPLICAS}", "--size", self.args.size, "--iterations", count,
                           "--repeat", 1)
        check.lockstep += failed_checks(result)
        for row, role, run in zip(self.rows, self.roles, ["cpu:0", "both at once"]):
            ours, = figures(result, "devices", ["seconds"], what=run)
            pythons[role].ask("products", max(1, count // 10))  # warm-up
            answers = pythons[role].ask("products", count)
            row.turns.append((ours, max(answer["seconds"] for answer in answers)))
            check.python += sum(answer["wrong"] for answer in answers)


class Allreduce:
    # Gloo has threads of its own beside the one that waits: whether one core or any is better depends on the size.
    name, roles = "allreduce", ["kept", "free"]
    said = dict(kept="Gloo on a core each", free="Gloo on any core")

    def __init__(self, args):
        self.rows_of = {size: [Row(f"sum of {size:,} B, {self.said[role]}", "us") for role in self.roles]
                        for size in args.bytes}
        self.rows = [row for rows in self.rows_of.values() for row in rows]
        self.checks_of = {size: Check(f"sums of {size:,} B") for size in args.bytes}
        self.checks = list(self.checks_of.values())

    def turn(self, bench, pythons):
        for size, rows in self.rows_of.items():
            check = self.checks_of[size]
            result = bench.run("allreduce", "--devices", f"cpux{REPLICAS}", "--allreduce", "two_shot", "--min-bytes", size,
                               "--max-bytes", size, "--repeat", SUM_TURNS, "--iterations", 1)
            us, wrong = figures(result, "allreduce", ["us", "wrong"], algorithm="two_shot", bytes=size)
            check.lockstep += wrong
            for row, role in zip(rows, self.roles):
                answers = pythons[role].ask("sums", size)
                row.turns.append((us / 1e6, sum_seconds([answer["turns"] for answer in answers])))
                check.python += sum(answer["wrong"] for answer in answers)


class Step:
    name, roles = "step", MEMORY_FORMATS

    def __init__(self, args):
        self.args = args
        self.rows = [Row(f"step of LeNet, {args.batch_size} images, {name}", "ms") for name in MEMORY_FORMATS]
        self.checks = []  # losses are compared elsewhere

    def turn(self, bench, pythons):
        steps = self.args.steps
        result = bench.run("step", "--devices", "cpu", *step_flags(self.args), "--iterations", steps, "--repeat", 1)
        ours, = figures(result, "step", ["ms"], devices="cpu", batch_size=self.args.batch_size)
        for row, role in zip(self.rows, self.roles):
            pythons[role].ask("run", WARMUP_STEPS)
            pythons[role].run(steps)
            row.turns.append((ours / 1e3, pythons[role].turns[-1]["seconds"] / steps))


PARTS = {part.name: part for part in (Products, Allreduce, Step)}
