#!/usr/bin/env python3
"""Compares sums over processes in `lockstep bench allreduce` with those of Python's torch.distributed, both over Gloo and
the loopback interface of this machine, one replica with one thread per process. Runs in the Python that has torch.

    bench_allreduce_gloo.py --lockstep build/release/lockstep [--json FILE]

Sizes grow by a factor of four. Both sides check that no element of a sum is wrong, begin each repetition together, and count
the slowest process. lockstep and Python run alternately, and ratios are taken within a repetition. A repetition of lockstep
is a fresh `lockstep launch` over all sizes, which deals the cores. Python's processes stay alive and idle in between; they
are bound to a core each, or free: Gloo has threads beside the one that waits, and it depends on the size what is better.

Exit codes: 0 all is well, 1 failed or a result is wrong, 2 usage, 7 output file, 130 or 143 stopped by a signal.
"""
import argparse
import contextlib
import json
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import compare_bench_rows as rows
from atomic_file import check_output, write_whole
from compare_bench_rows import Check, Row, failed_checks, figures, sum_seconds
from compare_cases import HERE, Case
from compare_program import add_json_flags, environment, positive, print_environment

GROWTH = 4  # factor from size to size, as in `lockstep bench allreduce`
SUM_REPETITIONS = 5  # per repetition of lockstep; the same number as in baseline_bench.py
ROLES = dict(kept="a core each", free="any core")


class Stopped(BaseException):
    def __init__(self, number):
        self.code = 128 + number


def stop(number, _):
    raise Stopped(number)


def sizes_of(args):
    """Returns the sizes in bytes, as lockstep derives them from the smallest and the largest."""
    sizes = [args.min_bytes]
    while sizes[-1] * GROWTH <= args.max_bytes:
        sizes.append(sizes[-1] * GROWTH)
    return sizes


def lockstep_command(args, file):
    return [args.lockstep, "launch", "-n", str(args.processes), "--", "bench", "allreduce", "--devices", "cpu", "--threads",
            "1", "--min-bytes", str(args.min_bytes), "--max-bytes", str(args.max_bytes), "--repeat", str(SUM_REPETITIONS),
            "--iterations", "1", "--json", str(file)]


def run_lockstep(args, folder):
    """Runs lockstep's side once and returns its JSON."""
    file = Path(folder) / "bench.json"
    file.unlink(missing_ok=True)
    command = lockstep_command(args, file)
    done = subprocess.run(command, stdout=subprocess.DEVNULL)
    result = file.read_text() if file.exists() else ""
    if done.returncode not in (0, 1) or not result:  # 1: a check has failed; the JSON says which
        sys.exit(f"error: lockstep ended with code {done.returncode}\n  {shlex.join(command)}")
    return json.loads(result)


def make_pythons(args, folder):
    def processes(role, *flags):
        words = [sys.executable, str(HERE / "baseline_bench.py"), "--size", "1", "--world", str(args.processes), "--store",
                 f"{folder}/{role}", *flags]
        return Case(f"{args.processes} processes, {ROLES[role]}", args.processes, 1,
                    [[*words, "--rank", str(rank)] for rank in range(args.processes)])

    return dict(kept=processes("kept"), free=processes("free", "--any-core"))


class Comparison:
    def __init__(self, args):
        self.args = args
        self.rows_of = {size: {role: Row(f"sum of {size:,} B, Python on {where}", "us") for role, where in ROLES.items()}
                        for size in sizes_of(args)}
        self.checks = [Check("sums")]
        self.wire_bytes = {}  # by size, in lockstep

    @property
    def rows(self):
        return [row for of_size in self.rows_of.values() for row in of_size.values()]

    def measure(self, pythons, folder):
        """Takes a repetition on both sides."""
        result = run_lockstep(self.args, folder)
        check = self.checks[0]
        check.lockstep += failed_checks(result)
        for size, of_size in self.rows_of.items():
            us, wrong = figures(result, "allreduce", ["us", "wrong"], algorithm="gloo", bytes=size,
                                processes=self.args.processes)
            check.lockstep += wrong
            self.wire_bytes[size] = next(row["wire_bytes"] for table in result["tables"] for row in table["rows"]
                                         if row["bytes"] == size)
            for role, row in of_size.items():
                answers = pythons[role].ask("sums", size)
                row.repetitions.append((us / 1e6, sum_seconds([answer["repetitions"] for answer in answers])))
                check.python += sum(answer["wrong"] for answer in answers)

    def print_end(self, stopped):
        for row in rows.taken([self]):
            print(rows.line(row))
        print("# bytes that a process of lockstep sends for a sum: "
              + ", ".join(f"{sent:,} for {size:,}" for size, sent in self.wire_bytes.items() if sent is not None))
        print(rows.check_line(self.checks[0]))
        print(rows.summary(rows.taken([self])))
        print(f"# bench_allreduce_gloo: {'OK' if self.checks[0].ok else 'FAILED'}"
              f"{' (stopped before the end)' if stopped else ''}")

    def as_json(self, env, pythons, complete):
        return dict(environment=env, processes=self.args.processes, repetitions=self.args.repeat, complete=complete,
                    lockstep=shlex.join(lockstep_command(self.args, "FILE")),
                    python={role: dict(commands=python.commands, **python.versions) for role, python in pythons.items()},
                    wire_bytes=self.wire_bytes, rows=[rows.as_json(row) for row in rows.taken([self])],
                    checks=[vars(check) | dict(ok=check.ok) for check in self.checks])


def measure(args, comparison, pythons, folder, stack):
    for python in pythons.values():
        stack.callback(python.kill)
        python.start()
    print(rows.heading(), flush=True)
    for repetition in range(args.repeat):
        comparison.measure(pythons, folder)
        ratios = (f"{row.repetitions[-1][0] / row.repetitions[-1][1]:.3f}" for row in comparison.rows)
        print(f"repetition {repetition + 1}/{args.repeat}: lockstep / Python {', '.join(ratios)}", file=sys.stderr)


def size_in_bytes(text):
    size = positive(text)
    if size % 4:
        raise argparse.ArgumentTypeError(f"takes whole floats of 4 bytes, got {size} bytes")
    return size


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True, metavar="PROGRAM")
    parser.add_argument("--processes", type=positive, default=2, metavar="N", help="default: 2")
    parser.add_argument("--repeat", type=positive, default=5, metavar="N",
                        help=f"repetitions; default: 5; ratios need at least {rows.RATIO_REPETITIONS}")
    parser.add_argument("--min-bytes", type=size_in_bytes, default=1 << 10, metavar="N", help="default: 1024")
    parser.add_argument("--max-bytes", type=size_in_bytes, default=1 << 26, metavar="N", help="default: 67108864")
    add_json_flags(parser)
    args = parser.parse_args()
    if args.processes < 2:
        parser.error("--processes must be at least 2: one process sums nothing over others")
    if args.min_bytes > args.max_bytes:
        parser.error(f"--min-bytes {args.min_bytes} is above --max-bytes {args.max_bytes}")
    return args


def main():
    args = parse()
    check_output("--json", args.json, args.overwrite)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    env = environment(args.lockstep)
    print_environment(env)
    comparison, stopped = Comparison(args), None
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        pythons = make_pythons(args, folder)
        try:
            measure(args, comparison, pythons, folder, stack)
        except Stopped as signalled:
            stopped = signalled
        except rows.MissingFigure as missing:
            sys.exit(f"error: {missing}")
    comparison.print_end(stopped)
    if args.json:
        result = comparison.as_json(env, pythons, complete=stopped is None)
        write_whole(args.json, json.dumps(result, indent=1) + "\n")
    sys.exit(stopped.code if stopped else 0 if comparison.checks[0].ok else 1)


if __name__ == "__main__":
    main()
