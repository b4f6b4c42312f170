#!/usr/bin/env python3
"""scripts/compare/two_hosts_steps.py PROGRAM [--rounds N] [--rate RATE] [--batch-size N]: steps of ResNet-18 on two hosts
that a slow network joins. The hosts are network namespaces on this machine, a core each, with a cable of RATE between them
(tc's word, 1gbit). Needs the right to make them, iproute2 and two idle cores.

Each round measures every case once with `lockstep bench scaling --predict 2`: its step on both hosts, the step that it
predicts for them, and what is exposed. Exit code: 77 without the rights."""

import argparse
import json
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/launchers"))
from processes import fail, run_test, skip  # noqa: E402
from two_hosts import FIRST, SECOND, Hosts, as_first_host, call  # noqa: E402

CASES = {"bucketed": ["--sync", "bucketed"],
         "overlapped": ["--sync", "overlapped"],
         "overlapped, bf16": ["--sync", "overlapped", "--compress", "bf16"]}
PATIENCE = 600  # seconds


def slow_down(hosts, rate):
    for place in ([], hosts.inside_second):
        made = call(*place, "tc", "qdisc", "add", "dev", "cable", "root", "tbf", "rate", rate, "burst", "256kb",
                    "latency", "50ms")
        if made.returncode != 0:
            skip(f"the cable's rate cannot be set: {made.stderr.strip()}")


def commands(args, flags, report):
    """One per host, each on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    for rank, address in enumerate((FIRST, SECOND)):
        yield ["taskset", "--cpu-list", cores[rank % len(cores)], args.program, "bench", "scaling", "--recipe",
               "resnet18-warmup", "--data", "synthetic", "--limit-train", 1024, "--batch-size", args.batch_size,
               "--devices", "cpu", "--threads", 1, "--scaling", "strong", "--repeat", 7, "--iterations", 1, *flags,
               "--predict", 2, "--rank", rank, "--world-size", 2, "--master", f"{FIRST}:29500", "--listen", address,
               *(["--json", report, "--overwrite"] if rank == 0 else [])]


def measure(hosts, args, flags, report):
    """Returns milliseconds of a step: measured and predicted for both hosts."""
    for running in hosts.start(*commands(args, flags, report)):
        running.end(seconds=PATIENCE)
    tables = {table["name"]: table["rows"] for table in json.loads(report.read_text())["tables"]}
    measured = [row["ms"] for row in tables["scaling"] if row["processes"] == 2]
    predicted = [row["ms"] for row in tables["prediction"] if row["processes"] == 2]
    if len(measured) != 1 or len(predicted) != 1:
        fail(f"expected one row for two processes: {tables}")
    return measured[0], predicted[0]


def compare(scratch, args):
    hosts = Hosts()
    try:
        slow_down(hosts, args.rate)
        times = {name: [] for name in CASES}
        for number in range(args.rounds):
            for name, flags in CASES.items():
                times[name].append(measure(hosts, args, flags, scratch / "report.json"))
                print(f"round {number + 1}, {name}: measured {times[name][-1][0]:.0f} ms, predicted "
                      f"{times[name][-1][1]:.0f} ms", flush=True)
    finally:
        hosts.stop()
    print(f"\nResNet-18, {args.batch_size} images, two hosts, {args.rate}, {args.rounds} rounds, medians of 7 repetitions\n")
    print("| case | ms per step (min - max) | / the case above | predicted / measured |\n|---|---|---|---|")
    above = None
    for name, rows in times.items():
        measured, predicted = zip(*rows)
        ratio = "-" if above is None else f"{statistics.median(a / b for a, b in zip(measured, above)):.2f}"
        error = statistics.median(b / a for a, b in rows)
        print(f"| {name} | {statistics.median(measured):.0f} ({min(measured):.0f} - {max(measured):.0f}) | {ratio} | "
              f"{error:.2f} |")
        above = measured


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--batch-size", type=int, default=64)
    wanted = parser.parse_args()
    as_first_host()
    run_test(compare, wanted)
