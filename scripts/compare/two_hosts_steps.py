#!/usr/bin/env python3
"""scripts/compare/two_hosts_steps.py PROGRAM [--repeat N] [--rate RATE] [--batch-size N]: steps of ResNet-18 on two hosts
that a slow network joins. The hosts are network namespaces on this machine, a core each, with a cable of RATE between them
(tc's word, 1gbit). Needs the right to make them, iproute2 and two idle cores.

Each repetition trains for some steps in every way, in turns. Then `lockstep bench scaling --predict 2` predicts the steps
without compression, which it does not know. Exit code: 77 without the rights."""

import argparse
import json
import pathlib
import statistics
import sys

from common import markdown, range_text
from compare_cases import on_core

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/launchers"))
from processes import fail, run_test, skip  # noqa: E402
from two_hosts import FIRST, SECOND, Hosts, as_first_host  # noqa: E402

CASES = {"bucketed": ["--sync", "bucketed"],
         "overlapped": ["--sync", "overlapped"],
         "overlapped, sharded": ["--sync", "overlapped", "--shard", "optimizer"],
         "overlapped, bf16": ["--sync", "overlapped", "--compress", "bf16"]}
PATIENCE = 600  # seconds
STEPS = 8  # of a training


def run(hosts, args, words, report):
    """Runs the command on both hosts, on a core each. Process 0 writes the report."""
    both = [on_core(rank, [args.program, *words, "--recipe", "resnet18-warmup", "--data", "synthetic", "--batch-size",
                           args.batch_size, "--devices", "cpu", "--threads", 1, "--rank", rank, "--world-size", 2,
                           "--master", f"{FIRST}:29500", "--listen", address, *(report if rank == 0 else [])])
            for rank, address in enumerate((FIRST, SECOND))]
    for running in hosts.start(*both):
        running.end(seconds=PATIENCE)


def trained_ms(hosts, args, flags, report):
    """The median of the steps behind the first one."""
    run(hosts, args, ["train", "--limit-train", args.batch_size * STEPS, "--limit-test", 1, "--epochs", 1, "--lr", .01,
                      "--log-every", 1, *flags], ["--metrics", report, "--overwrite"])
    events = [json.loads(line) for line in report.read_text().splitlines()]
    steps = [event["step_ms"] for event in events if event["event"] == "step"]
    if len(steps) != STEPS:
        fail(f"expected {STEPS} steps, found {len(steps)}")
    return statistics.median(steps[1:])


def predicted_ms(hosts, args, flags, report):
    run(hosts, args, ["bench", "scaling", "--limit-train", 1024, "--scaling", "strong", "--repeat", 3, "--iterations", 1,
                      "--predict", 2, *flags], ["--json", report, "--overwrite"])
    tables = {table["name"]: table["rows"] for table in json.loads(report.read_text())["tables"]}
    return next(row["ms"] for row in tables["prediction"] if row["processes"] == 2)


def print_table(args, times, predictions):
    print(f"\nResNet-18, {args.batch_size} images, two hosts, {args.rate}: medians of {args.repeat} repetitions\n")
    rows, above = [], None
    for name, ms in times.items():
        ratio = "-" if above is None else f"{statistics.median(a / b for a, b in zip(ms, above)):.2f}"
        predicted = f"{predictions[name]:.0f}" if name in predictions else "-"
        rows.append([name, range_text(ms, ".0f"), ratio, predicted])
        above = ms
    print("\n".join(markdown(["case", "ms per step (min - max)", "/ the case above", "predicted"], rows)))


def compare(scratch, args):
    hosts = Hosts()
    report = scratch / "report.json"
    try:
        if problem := hosts.slow_down(args.rate):
            skip(f"the cable's rate cannot be set: {problem}")
        times = {name: [] for name in CASES}
        for _ in range(args.repeat):
            for name, flags in CASES.items():
                times[name].append(trained_ms(hosts, args, flags, report))
        predictions = {name: predicted_ms(hosts, args, flags, report) for name, flags in CASES.items()
                       if "--compress" not in flags}
    finally:
        hosts.stop()
    print_table(args, times, predictions)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--repeat", type=int, default=7, help="repetitions; default: 7")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--batch-size", type=int, default=64)
    wanted = parser.parse_args()
    as_first_host()
    run_test(compare, wanted)
