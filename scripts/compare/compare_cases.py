"""The cases of compare_pytorch.py, compare_gpu.py and compare_bench.py: processes that warm up and then run on request.

A case prints `ready {...}` once warm, or `skip {...}` where this machine cannot run it. Then it answers each line on
stdin, such as `run N`, with one line of JSON. A case may have several processes (the ranks of DistributedDataParallel, or
lockstep's): all get each line, and the slowest one counts.
"""
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from common import CORES

HERE = Path(__file__).resolve().parent
# Networks that are exported, and whether lockstep has the same in C++.
PROGRAMS = dict(program_resnet18=True, program_gpt=True, program_mobilenet=False)
# After a step helper threads stay awake for some ms, on cores that the next case needs.
REST_SECONDS = 0.05
SHARD = ["--shard", "optimizer"]


class Case:
    def __init__(self, name, replicas, threads, commands):
        self.name, self.replicas, self.threads, self.commands = name, replicas, threads, commands
        self.processes = []
        self.repetitions = []
        self.idle_cpu_seconds = 0.0  # used while other cases ran
        self.versions, self.skipped = {}, None

    def begin(self):
        """Starts the processes."""
        for command in self.commands:
            # With its own process group: Ctrl-C reaches only this script, which ends all of them, compilers included.
            # Without its own session: the kernel divides a busy machine between sessions. A case also ends when its
            # stdin does.
            self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                                   bufsize=1, preexec_fn=os.setpgrp))

    def warm_up(self, limit=None):
        """Returns when the case is warm, or with `skipped` set: it cannot run here, or `limit` seconds have passed."""
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

    def start(self, limit=None):
        self.begin()
        self.warm_up(limit)

    def answers(self, limit=None):
        """Returns one line of each process. If one ends early, others may wait for it: the first to end is the one that
        failed."""
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
        hint = "; the kernel may have ended it because memory ran out: try a smaller --batch-size" if code == -9 else ""
        sys.exit(f"error: {self.name} ended with code {code}{hint}\n  {shlex.join(process.args)}")

    def ask(self, verb, number):
        """Sends a line to each process and returns their answers."""
        for process in self.processes:
            try:
                print(f"{verb} {number}", file=process.stdin)
            except BrokenPipeError:  # it has ended
                self.fail(process)
        return [json.loads(line) for line in self.answers()]

    def run(self, steps):
        results = self.ask("run", steps)
        slowest = max(results, key=lambda result: result["seconds"])
        self.repetitions.append(slowest | dict(loss=sum(result["loss"] for result in results) / len(results)))

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def cpu_seconds(self):
        """Returns the CPU time that the processes have used."""
        total = 0
        for process in self.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])  # utime, stime
        return total / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self):
        """Returns the memory of the processes; shared memory counts in part."""
        total = 0
        for process in self.processes:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total

    def per_step_ms(self, key, steps):
        return [1e3 * repetition[key] / steps for repetition in self.repetitions]

    def as_json(self):
        return dict(name=self.name, replicas=self.replicas, threads=self.threads, commands=self.commands,
                    idle_cpu_seconds=self.idle_cpu_seconds, **self.versions, repetitions=self.repetitions)


def on_core(number, command):
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "--cpu-list", str(cores[number % CORES]), *command]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Maker:
    """Makes the cases of a setting. folder: for the file through which DistributedDataParallel's ranks find each other."""

    def __init__(self, args, setting, folder):
        self.args, self.setting, self.folder = args, setting, folder

    def program(self):
        """Returns the file of the setting's program."""
        return f"{self.folder}/{self.setting.model}.pt2"

    def own(self):
        """Returns flags of lockstep's cases."""
        return ["--program", self.program()] if self.setting.model in PROGRAMS else []

    def hand(self):
        """Returns the case of the program's network in C++."""
        model = self.setting.model.removeprefix("program_")
        flags = self.flags(1)
        flags[flags.index("--model") + 1] = model
        return Case("lockstep cpux2 in C++", 2, 1,
                    [[self.args.compare_case, "--devices", "cpux2", *self.kernels(), *flags]])

    def export_command(self):
        return [word for word in self.python(1, "--export", self.program()) if word != "--serve"]

    def flags(self, threads, batch_size=None):
        """Flags that lockstep's and Python's cases share."""
        args, setting = self.args, self.setting
        return ["--model", setting.model, "--precision", setting.precision, "--threads", str(threads),
                "--batch-size", str(batch_size or args.batch_size), "--lr", str(setting.lr), "--seed", str(args.seed),
                "--data", args.data, "--warmup", str(setting.warmup), "--last-batch", "drop"]

    def lockstep(self, devices, threads, kernels=None, more=()):
        kernels = kernels or self.setting.kernels
        replicas = int(devices.partition("x")[2] or 1)
        name = f"lockstep {devices}" + ("" if kernels == "auto" else f" {kernels}") + (" sharded" if more else "")
        command = [self.args.compare_case, "--devices", devices, "--kernels", kernels, *self.flags(threads),
                   *self.own(), *more]
        return Case(name, replicas, threads, [command])

    def kernels(self):
        return ["--kernels", self.setting.kernels]

    def apart(self, runs):
        half = self.flags(1, max(1, self.args.batch_size // runs))
        return Case("2 runs apart", runs, 1,
                    [on_core(run, [self.args.compare_case, "--devices", "cpu", *half, *self.kernels(), *self.own()])
                     for run in range(runs)])

    def processes(self, world, more=()):
        group = ["--world-size", str(world), "--master", f"127.0.0.1:{free_port()}"]
        command = [self.args.compare_case, "--devices", "cpu", *self.flags(1), *self.kernels(), *self.own(), *group, *more]
        return Case(f"lockstep {world} processes" + (" sharded" if more else ""), world, 1,
                    [on_core(rank, [*command, "--rank", str(rank)]) for rank in range(world)])

    def python(self, threads, *flags):
        baseline = [sys.executable, str(HERE / "baseline_pytorch.py"), "--serve", *self.flags(threads),
                    "--memory-format", self.args.memory_format]
        if self.setting.model.endswith("resnet18"):
            baseline += ["--initialization", "normal"]  # the chapters', as in lockstep's case
        return [*baseline, *flags]

    def ranks(self, world, *flags):
        store = f"{self.folder}/{self.setting.model}-{self.setting.precision}{''.join(flags)}"
        return [self.python(1, *flags, "--world", str(world), "--store", store, "--rank", str(rank))
                for rank in range(world)]

    def other(self, role):
        if role == "eager":
            return Case("Python eager", 1, CORES, [self.python(CORES)])
        if role == "ddp":
            return Case("Python DDP", 2, 1, self.ranks(2))
        if role == "zero":
            return Case("Python DDP sharded", 2, 1, self.ranks(2, "--shard"))
        return Case("torch.compile", 1, CORES, [self.python(CORES, "--compile", self.args.compile_mode)])


def make_cases(args, setting, folder):
    """Returns the cases by role:
        hand                  like two, the network of a program (--model program_...) as a network of C++; where there is one
        all_cores             one replica on all cores
        two, one              two 1-thread replicas; one 1-thread replica
        processes             two processes of one 1-thread replica, over Gloo
        apart                 two independent runs of one 1-thread replica, each with half the batch: what two replicas
                              could reach on this machine
        direct                like two, without Winograd's tiles; only where the setting has it
        torch                 like all_cores, with torch's kernels, unless all have them
        eager, ddp, compile   Python's, as asked for
        sharded, sharded_processes, zero   two, processes and ddp with the optimizer's state shared out; only of wide_mlp
    """
    make = Maker(args, setting, folder)
    direct = dict(direct=make.lockstep("cpux2", 1, "direct")) if setting.has_direct else {}
    hand = dict(hand=make.hand()) if PROGRAMS.get(setting.model) else {}
    torch = dict(torch=make.lockstep("cpu", CORES, "torch")) if setting.kernels == "auto" else {}
    shards = dict(sharded=make.lockstep("cpux2", 1, more=SHARD), sharded_processes=make.processes(2, SHARD),
                  zero=make.other("zero")) if setting.model == "wide_mlp" else {}
    return dict(all_cores=make.lockstep("cpu", CORES), two=make.lockstep("cpux2", 1), one=make.lockstep("cpu", 1),
                processes=make.processes(2), apart=make.apart(2), **direct, **torch, **hand, **shards,
                **{role: make.other(role) for role in args.against})


def make_witnesses(args, setting):
    """Returns by role the cases that only the first repetition runs, for their loss. torch_two (like two, with torch's
    kernels) computes what DistributedDataParallel's two processes compute; for ResNet-18, bit for bit."""
    if setting.model != "resnet18" or "ddp" not in args.against:
        return {}
    return dict(torch_two=Maker(args, setting, folder=None).lockstep("cpux2", 1, "torch"))


def repeat_cases(cases, repetitions, steps):
    """Runs the cases one after the other, so many times; every second time in reverse order."""
    order = list(cases.values())
    for repetition in range(repetitions):
        for case in order if repetition % 2 == 0 else reversed(order):
            time.sleep(REST_SECONDS)
            others = [other for other in order if other is not case]
            before = [other.cpu_seconds() for other in others]
            case.run(steps)
            for other, used in zip(others, before):
                other.idle_cpu_seconds += other.cpu_seconds() - used
        times = (f"{c.name} x {c.threads} {c.per_step_ms('seconds', steps)[-1]:.1f}" for c in order)
        print(f"repetition {repetition + 1}/{repetitions}, ms per step: {', '.join(times)}", file=sys.stderr)
