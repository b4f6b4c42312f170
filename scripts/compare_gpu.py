#!/usr/bin/env python3
"""lockstep and Python torch train one network in turn on one GPU. gpu_check.sh calls it, for each network once.

Runs in the Python that has torch, which then also runs the baseline. Every contender holds the data as uint8 on the GPU,
starts from the same weights, visits the rows in the same order, and takes whole epochs, the last, smaller batch
included. All stay alive, warmed up by an epoch and idle but for their turn; turns alternate, ratios are taken within a turn, medians
count. After the turns each in turn is asked for its host's time a step, and keeps the GPU busy for some seconds while
nvidia-smi is read.

    LeNet       lockstep in fp32; eager Python as torch comes; the same through DistributedDataParallel (a world of one,
                over NCCL); torch.compile(max-autotune)
    ResNet-18   lockstep in bf16 and in TF32; eager Python as torch comes (TF32 in convolutions); eager Python with
                bf16 autocast, channels_last, cudnn.benchmark and fused SGD; that through DistributedDataParallel; that
                with torch.compile(max-autotune)

Exit codes: 0 all is well (goals may be missed), 1 a contender failed or losses differ, 2 usage.
"""
import argparse
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import compare_gpu_goals as goals
from compare_contenders import CORES, HERE, Contender, take_turns
from new_file import write_whole

MODELS = {
    # reserve: seconds that turns, host times and busy seconds may take
    "lenet": dict(lr=0.2, epochs=4, turns=10, reserve=60),
    "resnet18": dict(lr=0.1, epochs=1, turns=8, reserve=120),
}
HOST_STEPS = 20
BUSY_SECONDS = 3.0
LAST_SECONDS = 10.0  # of what there is, in which nothing new begins
SETTLE_SECONDS = 1.0  # nvidia-smi's utilization is that of up to a second before


class Smi:
    """nvidia-smi's readings of one GPU; none where there is no nvidia-smi."""

    QUERY = ["--query-gpu=utilization.gpu,memory.used,clocks.sm", "--format=csv,noheader,nounits"]

    def __init__(self, device):
        self.command = ["nvidia-smi", "-i", device.partition(":")[2] or "0", *self.QUERY]

    def read(self):
        """dict(busy %, memory MiB, clock MHz), or None."""
        try:
            text = subprocess.run(self.command, capture_output=True, text=True, check=True).stdout
            return dict(zip(("busy", "memory", "clock"), map(float, text.split(","))))
        except (OSError, ValueError, subprocess.CalledProcessError):
            return None

    def memory(self):
        sample = self.read()
        return sample and sample["memory"]

    def while_busy(self, work):
        """(mean busy %, mean clock) while work() goes on, or (None, None)."""
        samples, done, start = [], threading.Event(), time.monotonic()

        def watch():
            while not done.is_set():
                sample = self.read()
                # One that ended after the work did may tell of the time after it.
                if sample and not done.is_set() and time.monotonic() - start > SETTLE_SECONDS:
                    samples.append(sample)
                done.wait(0.1)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            work()
        finally:
            done.set()
            watcher.join()
        if not samples:
            return None, None
        return tuple(sum(sample[key] for sample in samples) / len(samples) for key in ("busy", "clock"))


def make_contenders(args, folder):
    """(role, contender) in the order in which they start; lockstep's comes first."""
    settings = MODELS[args.model]

    def common(precision):
        return ["--model", args.model, "--precision", precision, "--threads", str(args.threads),
                "--batch-size", str(args.batch_size), "--lr", str(settings["lr"]), "--seed", str(args.seed),
                "--data", args.data, "--warmup", str(args.steps), "--last-batch", "keep"]

    def ours(precision):
        return Contender(f"lockstep {precision}", 1, args.threads,
                         [[args.contender, "--devices", args.device, *common(precision)]])

    def python(name, precision, *flags):
        command = [sys.executable, str(HERE / "baseline_pytorch.py"), "--turns", "--device", args.device,
                   *common(precision), *flags]
        if args.model == "resnet18":
            command += ["--initialization", "normal"]  # the chapters', with which lockstep's contender starts
        return Contender(name, 1, args.threads, [command])

    chapters = ["--memory-format", "contiguous"]
    ddp, compiled = ["--store", f"{folder}/store"], ["--compile", args.compile_mode]
    if args.model == "lenet":
        yield "ours", ours("fp32")
        yield "eager", python("Python eager", "default", *chapters)
        yield "ddp", python("DDP, world 1", "default", *chapters, "--cudnn-benchmark", *ddp)
        yield "compile", python("torch.compile", "default", *chapters, "--cudnn-benchmark", *compiled)
    else:
        fast = ["--memory-format", "channels_last", "--cudnn-benchmark"]
        yield "ours", ours("bf16")
        yield "tf32", ours("tf32")
        yield "eager", python("Python eager", "default", *chapters)
        yield "fast", python("Python eager bf16", "bf16", *fast)
        yield "ddp", python("DDP bf16, world 1", "bf16", *fast, *ddp)
        yield "compile", python("torch.compile bf16", "bf16", *fast, *compiled)


class Comparison:
    def __init__(self, args, stack):
        self.args, self.stack, self.smi = args, stack, Smi(args.device)
        self.deadline = time.monotonic() + args.seconds
        self.rivals, self.memory = {}, {}
        self.notes, self.failed = [], False

    def note(self, text):
        self.notes.append(text)
        print(f"# {text}", flush=True)

    def left(self):
        return self.deadline - time.monotonic()

    def start(self):
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        for role, contender in make_contenders(self.args, folder):
            # torch.compile may take minutes, and the turns need theirs.
            limit = self.left() - MODELS[self.args.model]["reserve"]
            if role == "compile":
                limit = min(limit, self.args.compile_seconds)
            self.start_one(role, contender, max(limit, 1))

    def start_one(self, role, contender, limit):
        before, began = self.smi.memory(), time.monotonic()
        self.stack.callback(contender.kill)
        try:
            contender.start(limit)
        except SystemExit as error:  # it says why
            self.failed = True
            self.note(f"{contender.name} is left out: {error}")
            return
        if contender.skipped:
            # For want of time or of a compiler; only torch.compile is known to lack either.
            self.failed |= role != "compile"
            self.note(f"{contender.name} is left out: {contender.skipped}")
            return
        self.rivals[role] = contender
        after = self.smi.memory()
        self.memory[role] = None if before is None or after is None else after - before
        self.note(f"{contender.name} is warm after {time.monotonic() - began:.1f} s")

    def keep_busy(self, contender):
        """In one go, if its turns said how long it takes."""
        repeats = math.ceil(BUSY_SECONDS / min(turn["seconds"] for turn in contender.turns))
        end = time.monotonic() + BUSY_SECONDS
        while time.monotonic() < end:
            contender.ask("run", repeats * self.args.epochs * self.args.steps)

    def describe(self, role):
        """What is asked of a contender after the turns."""
        contender, host, busy, clock = self.rivals[role], None, None, None
        if self.left() > LAST_SECONDS:
            host = contender.ask("host", HOST_STEPS)[0]["seconds"]
            busy, clock = self.smi.while_busy(lambda: self.keep_busy(contender))
        else:
            self.note(f"{contender.name} is asked for no host time: the time is up")
        return dict(role=role, name=contender.name, commands=contender.commands,
                    first_loss=contender.versions["warmup"]["loss"], turns=contender.turns, host_seconds=host,
                    busy=busy, clock_mhz=clock, memory_mb=self.memory[role])

    def take_all_turns(self):
        """As many as there is time for, two by two: the second goes the other way round."""
        ours = self.rivals["ours"].turns
        while len(ours) < self.args.turns and (not ours or self.left() > MODELS[self.args.model]["reserve"] / 2):
            take_turns(self.rivals, 2, self.args.steps * self.args.epochs)
        if len(ours) < self.args.turns:
            self.note(f"only {len(ours)} turns: the time is up")

    def result(self, peak):
        self.take_all_turns()
        return dict(model=self.args.model, epochs=self.args.epochs, rows_per_epoch=self.args.rows, peak_tflops=peak,
                    contenders=[self.describe(role) for role in self.rivals], notes=self.notes)


def measure_peak(args):
    command = [sys.executable, str(HERE / "gpu_peak.py"), "--device", args.device, "--size", str(args.peak_size)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)["tflops"]


def compare(args):
    """The result with its goals and checks, and whether all went well."""
    peak = measure_peak(args)
    print(f"# {args.model} on {args.device}: {args.rows} images an epoch, batches of {args.batch_size}; a bf16 matrix "
          f"product makes {peak:.1f} TFLOP/s", flush=True)
    with contextlib.ExitStack() as stack:
        comparison = Comparison(args, stack)
        comparison.start()
        if "ours" not in comparison.rivals:
            sys.exit("error: lockstep itself did not start")
        result = comparison.result(peak)
    result["goals"] = goals.judge(result)
    result["loss_check"] = check = goals.loss_check(result)
    result["passed"] = check["met"] and not comparison.failed
    return result


def report(result):
    print("\n".join(goals.table(result)))
    print("\n".join(goals.goal_table(result["goals"])))
    check = result["loss_check"]
    print(f"{check['what']}: {check['difference']:.1e}, limit {check['limit']:g}: {'OK' if check['met'] else 'FAILED'}")


def training_rows(folder):
    """Of the labels' file: eight bytes, then one a row."""
    import gzip
    path = Path(folder) / "train-labels-idx1-ubyte"
    packed = path.with_name(path.name + ".gz")
    return len(gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()) - 8


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contender", required=True, metavar="PROGRAM", help="built from scripts/contender.cpp")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--device", default="cuda:0", help="as both sides name it; cpu shows that this works")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_DATA", "/usr/share/datasets/fashion-mnist"),
                        metavar="DIR")
    parser.add_argument("--turns", type=int)
    parser.add_argument("--epochs", type=int, help="of a turn")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=CORES)
    parser.add_argument("--compile-mode", choices=["default", "max-autotune"], default="max-autotune")
    parser.add_argument("--compile-seconds", type=float, default=240, help="after which torch.compile is left out")
    parser.add_argument("--peak-size", type=int, default=8192, help="of the matrix product")
    parser.add_argument("--seconds", type=float, default=500, help="in which all of it should be done")
    args = parser.parse_args()
    args.turns = args.turns or MODELS[args.model]["turns"]
    args.epochs = args.epochs or MODELS[args.model]["epochs"]
    args.rows = training_rows(args.data)
    args.steps = -(-args.rows // args.batch_size)
    return args


def main():
    args = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # through all that cleans up
    result = compare(args)
    report(result)
    if args.json:
        write_whole(args.json, json.dumps(result, indent=1) + "\n")
    sys.exit(0 if result["passed"] else 1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
