#!/usr/bin/env python3
"""Compares lockstep and Python torch, which train one network on one GPU. gpu_check.sh calls it once per network.

Runs in the Python that has torch, which then also runs the baseline. Every case holds the data as uint8 on the GPU,
starts from the same weights, visits the rows in the same order, and takes whole epochs, the smaller last batch included.
All cases stay alive, warmed up by one epoch. They run one after the other, every second time in reverse order; ratios
are taken within a repetition, and their median counts. After the repetitions each case reports the host time of a step,
and keeps the GPU busy for some seconds while nvidia-smi is read. The JSON is written after each pair of repetitions and
each case's figures, with null for what is not known yet.

    LeNet       lockstep in fp32; eager Python in fp32; the same through DistributedDataParallel (world size 1, over
                NCCL); torch.compile(max-autotune)
    ResNet-18   lockstep in bf16 and in TF32; eager Python in TF32; eager Python with bf16 autocast, channels_last,
                cudnn.benchmark and fused SGD; the latter through DistributedDataParallel, and with
                torch.compile(max-autotune)

Losses are compared among the cases of one precision.

Exit codes: 0 all is well (goals may be missed), 1 a case failed or losses differ, 2 usage.
"""
import argparse
import contextlib
import json
import math
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import compare_gpu_goals as goals
from common import CORES, add_data_flag, write_whole
from compare_cases import HERE, Case, repeat_cases
from gpu_smi import Smi

MODELS = {
    # reserve: seconds for repetitions, host times and busy seconds
    "lenet": dict(lr=0.2, epochs=4, repeat=10, reserve=60),
    "resnet18": dict(lr=0.1, epochs=1, repeat=8, reserve=120),
}
HOST_STEPS = 20
BUSY_SECONDS = 3.0
LAST_SECONDS = 10.0  # of the time, in which nothing new begins


class GpuCase(Case):
    """A case on one device, whose loss is compared with those of the same precision."""

    def __init__(self, name, precision, threads, command):
        super().__init__(name, 1, threads, [command])
        self.precision = precision


def make_cases(args, folder):
    """Yields (role, case) in the order of starting; lockstep's comes first."""
    settings = MODELS[args.model]

    def common(precision):
        return ["--model", args.model, "--precision", precision, "--threads", str(args.threads),
                "--batch-size", str(args.batch_size), "--lr", str(settings["lr"]), "--seed", str(args.seed),
                "--data", args.data, "--warmup", str(args.steps), "--last-batch", "keep"]

    def lockstep(precision):
        return GpuCase(f"lockstep {precision}", precision, args.threads,
                       [args.compare_case, "--devices", args.device, *common(precision)])

    def python(name, precision, *flags):
        command = [sys.executable, str(HERE / "baseline_pytorch.py"), "--serve", "--device", args.device,
                   *common(precision), *flags]
        if args.model == "resnet18":
            command += ["--initialization", "normal"]  # the chapters', as in lockstep's case
        return GpuCase(name, precision, args.threads, command)

    chapters = ["--memory-format", "contiguous"]
    ddp, compiled = ["--store", f"{folder}/store"], ["--compile", args.compile_mode]
    if args.model == "lenet":
        yield "lockstep", lockstep("fp32")
        yield "eager", python("Python eager", "fp32", *chapters)
        yield "ddp", python("DDP, world 1", "fp32", *chapters, "--cudnn-benchmark", *ddp)
        yield "compile", python("torch.compile", "fp32", *chapters, "--cudnn-benchmark", *compiled)
    else:
        fast = ["--memory-format", "channels_last", "--cudnn-benchmark"]
        yield "lockstep", lockstep("bf16")
        yield "tf32", lockstep("tf32")
        yield "eager", python("Python eager", "tf32", *chapters)
        yield "fast", python("Python eager bf16", "bf16", *fast)
        yield "ddp", python("DDP bf16, world 1", "bf16", *fast, *ddp)
        yield "compile", python("torch.compile bf16", "bf16", *fast, *compiled)


class Comparison:
    def __init__(self, args, stack):
        self.args, self.stack, self.smi = args, stack, Smi(args.device)
        self.cases, self.memory = {}, {}
        self.measured = {}  # by role, after the repetitions: dict(host_seconds, busy, clock_mhz)
        self.notes, self.failed = [], False

    def note(self, text):
        self.notes.append(text)
        print(f"# {text}", flush=True)

    def left(self):
        return self.args.deadline - time.monotonic()

    def start(self):
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        for role, case in make_cases(self.args, folder):
            # torch.compile may take minutes; the repetitions need their time too.
            limit = self.left() - MODELS[self.args.model]["reserve"]
            if role == "compile":
                limit = min(limit, self.args.compile_seconds)
            self.start_one(role, case, max(limit, 1))

    def start_one(self, role, case, limit):
        before, began = self.smi.memory(), time.monotonic()
        self.stack.callback(case.kill)
        try:
            case.start(limit)
        except SystemExit as error:  # holds the reason
            self.failed = True
            self.note(f"{case.name} is left out: {error}")
            return
        if case.skipped:
            # Time or a compiler is missing. Only torch.compile may be left out for that.
            self.failed |= role != "compile"
            self.note(f"{case.name} is left out: {case.skipped}")
            return
        self.cases[role] = case
        after = self.smi.memory()
        self.memory[role] = None if before is None or after is None else after - before
        self.note(f"{case.name} is warm after {time.monotonic() - began:.1f} s")

    def keep_busy(self, case):
        """Runs the case for about BUSY_SECONDS, in one request if its repetitions predict the time."""
        repeats = math.ceil(BUSY_SECONDS / min(repetition["seconds"] for repetition in case.repetitions))
        end = time.monotonic() + BUSY_SECONDS
        while time.monotonic() < end:
            case.ask("run", repeats * self.args.epochs * self.args.steps)

    def measure(self, role):
        """Measures what a case tells after the repetitions."""
        case, host, busy, clock = self.cases[role], None, None, None
        if self.left() > LAST_SECONDS:
            host = case.ask("host", HOST_STEPS)[0]["seconds"]
            busy, clock = self.smi.while_busy(lambda: self.keep_busy(case))
        else:
            self.note(f"{case.name} has no host time: the time is up")
        self.measured[role] = dict(host_seconds=host, busy=busy, clock_mhz=clock)

    def describe(self, role):
        case = self.cases[role]
        unknown = dict(host_seconds=None, busy=None, clock_mhz=None)
        return dict(role=role, name=case.name, precision=case.precision, commands=case.commands,
                    first_loss=case.versions["warmup"]["loss"], repetitions=case.repetitions,
                    memory_mb=self.memory[role], **self.measured.get(role, unknown))

    def run(self, peak):
        """Takes as many repetitions as there is time for, in pairs, the second one in reverse order; then measures the
        rest. Yields the result so far, again and again; the last one is whole."""
        lockstep = self.cases["lockstep"].repetitions
        while len(lockstep) < self.args.repeat and (not lockstep or self.left() > MODELS[self.args.model]["reserve"] / 2):
            repeat_cases(self.cases, 2, self.args.steps * self.args.epochs)
            yield self.result(peak)
        if len(lockstep) < self.args.repeat:
            self.note(f"only {len(lockstep)} repetitions: the time is up")
        for role in self.cases:
            self.measure(role)
            yield self.result(peak)

    def result(self, peak):
        result = dict(model=self.args.model, epochs=self.args.epochs, rows_per_epoch=self.args.rows, peak_tflops=peak,
                      cases=[self.describe(role) for role in self.cases], notes=self.notes)
        result["goals"] = goals.judge(result)
        result["loss_check"] = check = goals.loss_check(result)
        result["passed"] = check["met"] and not self.failed
        return result


def measure_peak(args):
    """Returns TFLOP/s. Exits where the device cannot be used: torch has then said why."""
    command = [sys.executable, str(HERE / "gpu_peak.py"), "--device", args.device, "--size", str(args.peak_size)]
    measured = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if measured.returncode:
        sys.exit(1)
    return json.loads(measured.stdout)["tflops"]


def compare(args, peak):
    """Returns the result with goals, checks, and whether all went well. Writes it to args.json, also while it grows."""
    print(f"# {args.model} on {args.device}: {args.rows} images per epoch, batches of {args.batch_size}; a bf16 matrix "
          f"product runs at {peak:.1f} TFLOP/s", flush=True)
    with contextlib.ExitStack() as stack:
        comparison = Comparison(args, stack)
        comparison.start()
        if "lockstep" not in comparison.cases:
            sys.exit("error: lockstep did not start")
        for result in comparison.run(peak):
            if args.json:
                write_whole(args.json, json.dumps(result, indent=1) + "\n")
    return result


def fill_compile_cache(args):
    """Warms up torch.compile's case alone: its compiler keeps its results for later processes."""
    with tempfile.TemporaryDirectory() as folder:
        case = next(case for role, case in make_cases(args, folder) if role == "compile")
        began = time.monotonic()
        try:
            case.start(max(args.deadline - began, 1))
        finally:
            case.kill()
    state = f"{case.skipped}: its cache is incomplete" if case.skipped else f"warm after {time.monotonic() - began:.0f} s"
    print(f"{case.name} is {state}")


def report(result):
    print("\n".join(goals.table(result)))
    print("\n".join(goals.goal_table(result["goals"])))
    check = result["loss_check"]
    print(f"{check['what']}: {check['difference']:.1e}, limit {check['limit']:g}: {'OK' if check['met'] else 'FAILED'}")


def training_rows(folder):
    """Returns the number of rows in the labels' file: 8 bytes of header, then one byte per row."""
    import gzip
    path = Path(folder) / "train-labels-idx1-ubyte"
    packed = path.with_name(path.name + ".gz")
    return len(gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()) - 8


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compare-case", required=True, metavar="PROGRAM", help="built from compare_case.cpp")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--device", default="cuda:0", help="default: cuda:0; cpu tests this script")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there")
    add_data_flag(parser)
    parser.add_argument("--repeat", type=int, metavar="N",
                        help="repetitions; default: 10 for LeNet, 8 for ResNet-18")
    parser.add_argument("--epochs", type=int, help="per repetition")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=CORES)
    parser.add_argument("--compile-mode", choices=["default", "max-autotune"], default="max-autotune")
    parser.add_argument("--compile-seconds", type=float, default=240,
                        help="torch.compile is left out when it takes longer; default: 240")
    parser.add_argument("--fill-compile-cache", action="store_true", help="only run torch.compile, so that a later "
                        "comparison finds its compiled kernels in its cache")
    parser.add_argument("--peak-size", type=int, default=8192, help="rows of the matrices whose product gives the peak")
    parser.add_argument("--seconds", type=float, default=500, help="time for all of it; default: 500")
    args = parser.parse_args()
    args.deadline = time.monotonic() + args.seconds
    args.repeat = args.repeat or MODELS[args.model]["repeat"]
    args.epochs = args.epochs or MODELS[args.model]["epochs"]
    args.rows = training_rows(args.data)
    args.steps = -(-args.rows // args.batch_size)
    return args


def main():
    args = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # runs the clean-up
    if args.fill_compile_cache:
        args.peak_size = 1  # it tells only whether the device can be used
    peak = measure_peak(args)
    if args.fill_compile_cache:
        fill_compile_cache(args)
        return
    result = compare(args, peak)
    report(result)
    sys.exit(0 if result["passed"] else 1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
