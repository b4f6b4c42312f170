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


class Bench:
    """Runs lockstep's side."""

    def __init__(self, program, seed, folder):
        self.program, self.seed, self.json = program, seed, Path(folder) / "bench.json"
        self.commands = {}  # the last one of each benchmark
        self.pythons = []  # idle meanwhile
        self.seconds = self.pythons_cpu_seconds = 0.0

    def run(self, name, *flags, launch=()):
        """Runs a benchmark, in processes with the words of `lockstep launch`, and returns its JSON."""
        self.json.unlink(missing_ok=True)
        command = [self.program, *launch, "bench", name, *map(str, flags), "--threads", "1", "--seed", str(self.seed)]
        self.commands[name] = shlex.join(command)
        before, start = self.pythons_used(), time.perf_counter()
        done = subprocess.run([*command, "--json", str(self.json)], stdout=subprocess.DEVNULL)
        self.seconds += time.perf_counter() - start
        self.pythons_cpu_seconds += self.pythons_used() - before
        result = self.json.read_text() if self.json.exists() else ""
        if done.returncode not in (0, 1) or not result:  # 1: a check has failed; the JSON says which
            sys.exit(f"error: lockstep bench {name} ended with code {done.returncode}\n  {self.commands[name]}")
        return json.loads(result)

    def pythons_used(self):
        return sum(python.cpu_seconds() for python in self.pythons)


def make_python(role, args, folder):
    """Returns Python's case of a role: N processes, which are kept to a core each or free, or a training step in a memory
    format. folder: for the file through which processes find each other."""
    if role in MEMORY_FORMATS:
        step = [sys.executable, str(HERE / "baseline_pytorch.py"), "--serve", *step_flags(args), "--threads", "1", "--seed",
                str(args.seed), "--last-batch", "drop", "--warmup", str(WARMUP_STEPS), "--memory-format", role]
        return Case(f"LeNet, {role}", 1, 1, [step])
    count, where = role
    command = [sys.executable, str(HERE / "baseline_bench.py"), "--size", str(args.size), "--seed", str(args.seed)]
    if count == 1:
        return Case("1 process", 1, 1, [command])
    command += ["--world", str(count), "--store", f"{folder}/{count}-{where}", *(["--any-core"] if where == "free" else [])]
    return Case(f"{count} processes, {where}", count, 1, [[*command, "--rank", str(rank)] for rank in range(count)])


def step_flags(args):
    return ["--model", "lenet", "--precision", "fp32", "--batch-size", str(args.batch_size), "--data", args.data]


class Matmuls:
    name, roles = "matmuls", [(1, "kept"), (REPLICAS, "kept")]

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
    name, said = "allreduce", dict(kept="Gloo on a core each", free="Gloo on any core")
    sizes = [8, 516_272, 16 << 20, 64 << 20]  # two floats, LeNet's gradients, and two sizes beyond any cache

    def __init__(self, args):
        self.processes = REPLICAS
        self.flags, self.launch = ["--devices", f"cpux{REPLICAS}", "--allreduce", "two_shot"], []
        self.wanted, self.more = dict(algorithm="two_shot"), []
        self.set_rows(args)

    def set_rows(self, args):
        sizes = args.bytes or self.sizes
        self.roles = [(self.processes, where) for where in self.said]
        self.rows_of = {size: [Row(f"sum of {size:,} B, {said}", "us") for said in self.said.values()] for size in sizes}
        self.rows = [row for rows in self.rows_of.values() for row in rows]
        self.checks_of = {size: Check(f"sums of {size:,} B") for size in sizes}
        self.checks = list(self.checks_of.values())

    def measure(self, bench, pythons):
        for size, rows in self.rows_of.items():
            check = self.checks_of[size]
            result = bench.run("allreduce", *self.flags, "--min-bytes", size, "--max-bytes", size, "--repeat",
                               SUM_REPETITIONS, "--iterations", 1, launch=self.launch)
            us, wrong, *sent = figures(result, "allreduce", ["us", "wrong", *self.more], bytes=size, **self.wanted)
            check.lockstep += wrong + failed_checks(result)
            check.wire_bytes = sent[0] if sent else None
            for row, role in zip(rows, self.roles):
                answers = pythons[role].ask("sums", size)
                row.repetitions.append((us / 1e6, sum_seconds([answer["repetitions"] for answer in answers])))
                check.python += sum(answer["wrong"] for answer in answers)


class Gloo(Allreduce):
    """The same over processes on both sides. A repetition of lockstep is a fresh `lockstep launch`, which deals the cores."""
    name, said = "gloo", dict(kept="Python on a core each", free="Python on any core")
    sizes = [1 << power for power in range(10, 27, 2)]

    def __init__(self, args):
        self.processes = args.processes
        self.flags, self.launch = ["--devices", "cpu"], ["launch", "-n", str(args.processes), "--"]
        self.wanted, self.more = dict(algorithm="gloo", processes=args.processes), ["wire_bytes"]
        self.set_rows(args)


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


PARTS = {part.name: part for part in (Matmuls, Allreduce, Gloo, Step)}
