#!/usr/bin/env python3
"""Stands in for every program that a comparison starts: its file's name says which. Writes its words to $CALLS.

$FAKE, in JSON, makes it another one:
    gpus      number of GPUs that `lockstep devices` lists
    wrong     wrong elements of each of lockstep's sums; python_wrong: of each process of Python
    failed    a check of lockstep's benchmarks has failed
    ends      dict(run, code): from this run on lockstep ends with this code; -15: after it has stopped what started it
    losses    by program: its mean loss; default: 2
    cold      words of a command that never gets warm
    skips     words of a command that cannot run here
"""
import json
import os
import signal
import sys
import time
from pathlib import Path

NAME, WORDS = Path(sys.argv[0]).name, sys.argv[1:]
FAKE = json.loads(os.environ.get("FAKE", "{}"))
CALLS = Path(os.environ["CALLS"])
STEP_SECONDS = {"compare_case": .004, "baseline_pytorch.py": .04}


def value_of(flag):
    return WORDS[WORDS.index(flag) + 1] if flag in WORDS else None


# ---- the cases, which answer lines


def step(count):
    seconds = count * STEP_SECONDS[NAME]
    return dict(seconds=seconds, data=0.0, compute=seconds, sync=0.0, update=0.0, loss=FAKE.get("losses", {}).get(NAME, 2.0))


ANSWERS = dict(run=step, host=lambda count: dict(seconds=5e-6), matmuls=lambda count: dict(seconds=count * .5, wrong=0),
               sums=lambda size: dict(repetitions=[[.25, .25]] * 5, wrong=FAKE.get("python_wrong", 0)))


def serve():
    if FAKE.get("cold") and FAKE["cold"] in WORDS:
        time.sleep(600)
    if FAKE.get("skips") and FAKE["skips"] in WORDS:
        print("skip", json.dumps(dict(why="no compiler")), flush=True)
        return
    known = dict(torch="2.15", python="3", compile_mode="default", trial_ms=dict(default=1.0))
    if NAME in STEP_SECONDS:
        known["warmup"] = step(int(value_of("--warmup")))
    print("ready", json.dumps(known), flush=True)
    for line in sys.stdin:
        verb, _, number = line.partition(" ")
        print(json.dumps(ANSWERS[verb](int(number))), flush=True)


# ---- lockstep


def devices():
    print("devices\n  cpu     A CPU\n          2 cores")
    for gpu in range(FAKE.get("gpus", 0)):
        print(f"  cuda:{gpu}  A GPU\n          132 multiprocessors")
    print("\n--devices takes\n  cpu     one\n  cuda:0, cuda    all\n  cuda:0x2        two\n  cuda:0,cuda:1   a list")


def train():
    """One epoch, in its --metrics file."""
    events = [dict(event="epoch", train_loss=2.0, test_accuracy=.8), dict(event="end", seconds_per_epoch=4.0)]
    Path(value_of("--metrics")).write_text("".join(json.dumps(event) + "\n" for event in events))


def scaling_row(replicas, batch_size, seconds, speedup):
    return dict(mode="x", devices="x", replicas=replicas, batch_size=batch_size, ms=1.0, seconds_per_epoch=seconds,
                speedup=speedup, efficiency=50 * speedup if replicas == 2 else 100.0, exposed_sync=2.5, accuracy=None)


def sums_row():
    launched = WORDS[0] == "launch"
    return dict(algorithm="gloo" if launched else "two_shot", bytes=int(value_of("--min-bytes")), us=1e6,
                wrong=FAKE.get("wrong", 0), **dict(processes=int(value_of("-n")), wire_bytes=99) if launched else {})


def tables(bench):
    """One device takes 4 s per epoch, two take 2.5 s; a sum takes a second."""
    rows = dict(scaling=lambda: [scaling_row(1, 256, 4.0, 1.0), scaling_row(2, 512, 2.5, 1.6)],
                allreduce=lambda: [sums_row()],
                overlap=lambda: [dict(what=what, seconds=2.0) for what in ("cpu:0", "both at once")],
                step=lambda: [dict(devices="cpu", batch_size=int(value_of("--batch-size")), ms=10.0)])[bench]()
    return [dict(name="devices" if bench == "overlap" else bench, rows=rows)]


def bench():
    ok = not FAKE.get("failed", False)
    name = WORDS[WORDS.index("bench") + 1]
    environment = dict(date="today", cpu="A CPU", cores=2, instructions="AVX512", memory_bytes=8 << 30, gpus=[],
                       libraries=dict(lockstep="0.1.0"))
    result = dict(bench=name, tables=tables(name), ok=ok, environment=environment,
                  checks=[dict(name="replicas", ok=ok, detail="their weights differ")])
    Path(value_of("--json")).write_text(json.dumps(result))
    return 0 if ok else 1


def lockstep():
    if WORDS == ["--version"]:
        print("lockstep that stands in")
        return 0
    if WORDS == ["devices"]:
        return devices()
    ends = FAKE.get("ends", dict(run=sys.maxsize))
    if sum(line.startswith("lockstep") and " bench " in line for line in CALLS.read_text().splitlines()) >= ends["run"]:
        if ends["code"] != -signal.SIGTERM:
            return ends["code"]
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(600)
    return train() if WORDS[0] == "train" else bench()


def main():
    with CALLS.open("a") as calls:
        print(NAME, *WORDS, file=calls)
    if NAME == "lockstep":
        return lockstep()
    if NAME == "nvidia-smi":
        return print("97, 512, 1980")
    if NAME == "gpu_peak.py":
        return print(json.dumps(dict(tflops=800.0)))
    return train() if "--metrics" in WORDS else serve()


if __name__ == "__main__":
    sys.exit(main())
