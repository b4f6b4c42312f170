"""Contenders of compare_turns.py, compare_gpu.py and compare_bench.py: processes that are started, warmed up, asked for
steps, and gone in the end.

Contenders speak a protocol of lines: they print `ready {...}` once warm (or `skip {...}` where this machine cannot run
them), and for each line such as `run N` one line of JSON. A contender of several processes (the ranks of
DistributedDataParallel) is asked and answers as one: its slowest process counts.
"""
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORES = len(os.sched_getaffinity(0))
# Helper threads stay awake for some ms after a step, on cores that the next contender wants.
REST_SECONDS = 0.05


class Contender:
    def __init__(self, name, replicas, threads, commands):
        self.name, self.replicas, self.threads, self.commands = name, replicas, threads, commands
        self.processes = []
        self.turns = []
        self.idle_cpu_seconds = 0.0  # used while others had their turn
        self.versions, self.skipped = {}, None

    def start(self, limit=None):
        """Returns when it is warm, or when it is known why it cannot be (`skipped`), which is also the case when
        `limit` seconds have passed."""
        for command in self.commands:
            # In a process group of its own: Ctrl-C reaches the driver alone, which ends them all, compilers included.
            # Not in a session of its own: the kernel shares out a busy machine by sessions. They also end by themselves
            # when their stdin does.
            self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                                   bufsize=1, preexec_fn=os.setpgrp))
        try:
            verb, _, rest = self.answers(limit)[0].partition(" ")
        except TimeoutError:
            self.kill()
            self.skipped = f"not warm after {limit:.0f} s"
            return
        if verb == "skip":
            self.skipped = json.loads(rest)["why"]
        else:
            self.versions = json.loads(rest)

    def answers(self, limit=None):
        """A line of each process. They may wait for each other, so that the first to end is the one to blame."""
        waiting = {process.stdout: process for process in self.processes}
        lines = {}
        while waiting:
            readable = select.select(list(waiting), [], [], limit)[0]
            if not readable:
                raise TimeoutError
            for stream in readable:
                process = waiting.pop(stream)
                lines[process] = stream.readline()
                if not lines[process]:
                    self.fail(process)
        return [lines[process] for process in self.processes]

    def fail(self, process):
        code = process.wait()
        hint = "; the kernel may have ended it for want of memory: try a smaller --batch-size" if code == -9 else ""
        sys.exit(f"error: {self.name} ended with code {code}{hint}\n  {shlex.join(process.args)}")

    def ask(self, verb, number):
        """The answer of each process."""
        for process in self.processes:
            try:
                print(f"{verb} {number}", file=process.stdin)
            except BrokenPipeError:  # it ended between the turns
                self.fail(process)
        return [json.loads(line) for line in self.answers()]

    def run(self, steps):
        results = self.ask("run", steps)
        slowest = max(results, key=lambda result: result["seconds"])
        self.turns.append(slowest | dict(loss=sum(result["loss"] for result in results) / len(results)))

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def cpu_seconds(self):
        """That its processes have used, all threads together."""
        total = 0
        for process in self.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])  # utime, stime
        return total / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self):
        """Of memory that is shared, its part."""
        total = 0
        for process in self.processes:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total

    def per_step_ms(self, key, steps):
        return [1e3 * turn[key] / steps for turn in self.turns]

    def as_json(self):
        return dict(name=self.name, replicas=self.replicas, threads=self.threads, commands=self.commands,
                    idle_cpu_seconds=self.idle_cpu_seconds, **self.versions, turns=self.turns)


class Maker:
    """Makes the contenders of a case. folder: where DistributedDataParallel's ranks meet."""

    def __init__(self, args, case, folder):
        self.args, self.case, self.folder = args, case, folder

    def flags(self, threads, batch_size=None):
        """Those that both sides know."""
        args, case = self.args, self.case
        return ["--model", case.model, "--precision", case.precision, "--threads", str(threads),
                "--batch-size", str(batch_size or args.batch_size), "--lr", str(case.lr), "--seed", str(args.seed),
                "--data", args.data, "--warmup", str(case.warmup), "--last-batch", "drop"]

    def ours(self, devices, threads, kernels="auto"):
        replicas = int(devices.partition("x")[2] or 1)
        name = f"lockstep {devices}" + ("" if kernels == "auto" else f" {kernels}")
        command = [self.args.contender, "--devices", devices, "--kernels", kernels, *self.flags(threads)]
        return Contender(name, replicas, threads, [command])

    def apart(self, runs):
        cores = sorted(os.sched_getaffinity(0))
        half = self.flags(1, max(1, self.args.batch_size // runs))
        command = [self.args.contender, "--devices", "cpu", *half]
        return Contender("2 runs apart", runs, 1,
                         [["taskset", "--cpu-list", str(cores[run % CORES]), *command] for run in range(runs)])

    def python(self, threads, *flags):
        baseline = [sys.executable, str(HERE / "baseline_pytorch.py"), "--turns", *self.flags(threads),
                    "--memory-format", self.args.memory_format]
        if self.case.model == "resnet18":
            baseline += ["--initialization", "normal"]  # the chapters', with which lockstep's contender starts
        return [*baseline, *flags]

    def ranks(self, world):
        meet = ["--world", str(world), "--store", f"{self.folder}/{self.case.model}-{self.case.precision}"]
        return [self.python(1, *meet, "--rank", str(rank)) for rank in range(world)]

    def other(self, role):
        if role == "eager":
            return Contender("Python eager", 1, CORES, [self.python(CORES)])
        if role == "ddp":
            return Contender("Python DDP", 2, 1, self.ranks(2))
        return Contender("torch.compile", 1, CORES, [self.python(CORES, "--compile", self.args.compile_mode)])


def make_contenders(args, case, folder):
    """By role: ours (one replica on all cores), two (two 1-thread replicas), one (one 1-thread replica), apart (two
    runs of one 1-thread replica and half the batch each, that know nothing of each other: what the machine lets two
    replicas do), direct (two's layout without Winograd's tiles, where the case has that), stock (ours' layout by
    torch's kernels), and those of eager, ddp, compile that were asked for."""
    make = Maker(args, case, folder)
    direct = dict(direct=make.ours("cpux2", 1, "direct")) if case.has_direct else {}
    return dict(ours=make.ours("cpu", CORES), two=make.ours("cpux2", 1), one=make.ours("cpu", 1), apart=make.apart(2),
                **direct, stock=make.ours("cpu", CORES, "stock"), **{role: make.other(role) for role in args.against})


def make_witnesses(args, case):
    """By role: contenders of which only the first turn's loss is wanted. stock_two (two's layout by torch's kernels)
    computes what DistributedDataParallel's two processes compute, bit for bit where the network is ResNet-18."""
    if case.model != "resnet18" or "ddp" not in args.against:
        return {}
    return dict(stock_two=Maker(args, case, folder=None).ours("cpux2", 1, "stock"))


def take_turns(rivals, turns, steps):
    order = list(rivals.values())
    for turn in range(turns):
        for contender in order if turn % 2 == 0 else reversed(order):
            time.sleep(REST_SECONDS)
            others = [other for other in order if other is not contender]
            before = [other.cpu_seconds() for other in others]
            contender.run(steps)
            for other, used in zip(others, before):
                other.idle_cpu_seconds += other.cpu_seconds() - used
        times = (f"{c.name} x {c.threads} {c.per_step_ms('seconds', steps)[-1]:.1f}" for c in order)
        print(f"turn {turn + 1}/{turns}, ms a step: {', '.join(times)}", file=sys.stderr)
