#!/usr/bin/env python3
"""scripts/busy_machine.py [--built FOLDER] [--repeat N] [--busy N] [--model lenet|resnet18]: measures a step of
`lockstep train` with three ways in which OpenMP's threads wait, with and without background load.

  spinning   libgomp's default, 300,000 iterations of a loop (GOMP_SPINCOUNT=300000)
  1000       a short spin, lockstep's default (GOMP_SPINCOUNT=1000)
  passive    asleep at once (OMP_WAIT_POLICY=passive)

Each repetition runs every setting once, so that ratios compare runs of the same minute. The background load is shell
loops that never sleep. Measure on a machine that does nothing else. Needs no Python package.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

SETTINGS = {"spinning": {"GOMP_SPINCOUNT": "300000"}, "1000": {}, "passive": {"OMP_WAIT_POLICY": "passive"}}
FLAGS = {
    "lenet": ["--limit-train", "20480", "--limit-steps", "80", "--log-every", "20"],
    "resnet18": ["--recipe", "resnet18-warmup", "--lr", ".05", "--batch-size", "256", "--limit-train", "1024",
                 "--limit-steps", "4", "--log-every", "1"],
}


def step_ms(program, model, devices, setting):
    """Returns the median over the run's step events without the first one."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "run.jsonl")
        command = [program, "train", "--quiet", "--epochs", "1", "--limit-test", "256", *FLAGS[model],
                   "--devices", devices, "--metrics", metrics]
        subprocess.run(command, env={**os.environ, **setting}, check=True, stdout=subprocess.DEVNULL)
        events = [json.loads(line) for line in open(metrics)]
    return statistics.median(event["step_ms"] for event in events[2:] if event["event"] == "step")


def measure(program, model, repeat, busy):
    background_load = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(busy)]
    times = {}
    try:
        for _ in range(repeat):
            for devices in ("cpu", "cpux2"):
                for name, setting in SETTINGS.items():
                    times.setdefault((devices, name), []).append(step_ms(program, model, devices, setting))
    finally:
        for loop in background_load:
            loop.kill()
            loop.wait()
    return times


def print_rows(model, busy, times):
    for (devices, name), ms in times.items():
        ratio = statistics.median(a / b for a, b in zip(ms, times[devices, "spinning"]))
        print(f"| {model} | {busy} | `{devices}` | {name} | {statistics.median(ms):.1f} "
              f"({min(ms):.1f} - {max(ms):.1f}) | {ratio:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--built", default="build/release", help="folder of the program")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions; default: 5")
    parser.add_argument("--busy", type=int, default=1, help="busy programs in the second half; default: 1")
    parser.add_argument("--model", choices=FLAGS, default="lenet")
    options = parser.parse_args()
    program = os.path.join(options.built, "lockstep")
    print("| model | busy programs | devices | waiting | ms per step (min - max) | / spinning |\n|---|---|---|---|---|---|")
    for busy in (0, options.busy):
        print_rows(options.model, busy, measure(program, options.model, options.repeat, busy))


if __name__ == "__main__":
    main()
