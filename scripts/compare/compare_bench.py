#!/usr/bin/env python3
"""Compares what `lockstep bench` measures with the same in Python torch. compare_bench.sh builds and calls this. Runs in
the Python that has torch, which then also runs Python's side.

    matmuls     matrix products: a float matrix times itself, on one replica and on two at once, with one thread each. Both
                sides draw the same matrix, write into a ring of results, and check the results
    allreduce   sums over two replicas, or over two processes of torch.distributed's Gloo, which are bound to a core each or
                free; one thread each. The sums of the inputs are exact: no element may be wrong. lockstep's replicas share
                memory, Gloo's processes use the loopback: that is what each offers on one machine
    gloo        sums over processes on both sides, each over Gloo and the loopback. Only where it is named
    step        a training step of LeNet in fp32 on one thread; in Python eager, in both memory formats. compare_pytorch.sh
                checks that both sides compute the same loss

lockstep and Python run alternately; ratios are taken within a repetition, so that what slows the machine down for a while
slows both sides of a ratio. lockstep's repetition is a fresh, short run of its command, as a user types it; it warms up by
itself. Python's processes stay alive and idle in between: starting torch takes seconds, which are not to be measured. Each
of their repetitions begins with a warm-up too, so that neither side is measured on cold caches.

Exit codes: 0 all is well, 1 failed or a result is wrong, 2 usage, 7 output file, 130 or 143 stopped by a signal.
"""
import argparse
import contextlib
import json
import signal
import sys
import tempfile

import compare_bench_rows as rows
from common import (add_data_flag, add_output_flags, check_outputs, environment, list_of, number_from, positive,
                    print_environment, write_whole)
from compare_bench_parts import PARTS, Bench, make_python

USUAL_PARTS = ["matmuls", "allreduce", "step"]


class Stopped(BaseException):
    def __init__(self, number):
        self.code = 128 + number


def stop(number, _):
    raise Stopped(number)


def start(pythons, stack):
    """Starts all processes before the first repetition, so that missing data is noticed at once."""
    for python in pythons.values():
        stack.callback(python.kill)
        python.begin()
    for python in pythons.values():
        python.warm_up()


def repeat_part(part, bench, pythons, repetitions):
    for repetition in range(repetitions):
        part.measure(bench, pythons)
        ratios = (f"{lockstep / python:.3f}" for row in part.rows for lockstep, python in row.repetitions[-1:])
        print(f"{part.name}, repetition {repetition + 1}/{repetitions}: lockstep / Python {', '.join(ratios)}",
              file=sys.stderr)


def measure(args, parts, bench, pythons):
    print(rows.heading(), flush=True)
    for part in parts:
        try:
            repeat_part(part, bench, pythons, args.repeat)
        finally:  # also after a signal: prints what is done
            for row in rows.taken([part]):
                print(rows.line(row), flush=True)


def write_json(args, env, bench, pythons, parts, complete):
    result = dict(environment=env, repetitions=args.repeat, complete=complete, lockstep=bench.commands,
                  python={python.name: dict(commands=python.commands, **python.versions) for python in pythons.values()},
                  idle_share=rows.idle_share(bench), rows=[rows.as_json(row) for row in rows.taken(parts)],
                  checks=[vars(check) | dict(ok=check.ok) for part in parts for check in part.checks])
    write_whole(args.json, json.dumps(result, indent=1) + "\n")


def finish(args, env, bench, pythons, parts, stopped):
    """Prints the end and returns the exit code."""
    parts = [part for part in parts if rows.taken([part])]
    checks = [check for part in parts for check in part.checks]
    ok = all(check.ok for check in checks)
    for check in checks:
        print(rows.check_line(check))
    print(f"# cores used by Python while lockstep ran: {rows.idle_share(bench):.3f}")
    print(rows.summary(rows.taken(parts)))
    print(f"# compare_bench: {'OK' if ok else 'FAILED'}{' (stopped before the end)' if stopped else ''}")
    if args.json:
        write_json(args, env, bench, pythons, parts, complete=stopped is None)
    if stopped:
        return stopped.code
    return 0 if ok else 1


def byte_list(text):
    sizes = [positive(size) for size in text.split(",")]
    odd = [size for size in sizes if size % 4]
    if odd:
        raise argparse.ArgumentTypeError(f"takes whole floats of 4 bytes, got {odd[0]} bytes")
    return sizes


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True, metavar="PROGRAM")
    parser.add_argument("--parts", type=list_of(PARTS), default=USUAL_PARTS, metavar="LIST", help=f"of {','.join(PARTS)}; "
                        f"default: {','.join(USUAL_PARTS)}")
    parser.add_argument("--repeat", type=positive, default=5, metavar="N",
                        help=f"repetitions; default: 5; ratios need at least {rows.RATIO_REPETITIONS}")
    parser.add_argument("--size", type=positive, default=1000, help="rows and columns of the matrix; default: 1000")
    parser.add_argument("--iterations", type=positive, default=50, metavar="N",
                        help="matrix products per repetition; default: 50, as in the chapter")
    parser.add_argument("--bytes", type=byte_list, metavar="LIST", help="sizes of sums; default of allreduce: "
                        f"{','.join(map(str, PARTS['allreduce'].sizes))}; of gloo: 1 KiB to 64 MiB by a factor of four")
    parser.add_argument("--processes", type=number_from(2), default=2, metavar="N", help="of gloo; default: 2")
    parser.add_argument("--steps", type=positive, default=20, help="per repetition; default: 20")
    parser.add_argument("--batch-size", type=positive, default=256)
    add_data_flag(parser)
    parser.add_argument("--seed", type=int, default=0)
    add_output_flags(parser, markdown=False)
    return parser.parse_args()


def main():
    args = parse()
    check_outputs(args)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    env = environment(args.lockstep) | dict(seed=args.seed)
    print_environment(env)
    parts = [PARTS[name](args) for name in args.parts]
    stopped = None
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        bench = Bench(args.lockstep, args.seed, folder)
        pythons = {role: make_python(role, args, folder) for part in parts for role in part.roles}
        try:
            start(pythons, stack)
            bench.pythons = list(pythons.values())
            measure(args, parts, bench, pythons)
        except Stopped as signalled:
            stopped = signalled
        except rows.MissingFigure as missing:
            sys.exit(f"error: {missing}")
    sys.exit(finish(args, env, bench, pythons, parts, stopped))


if __name__ == "__main__":
    main()
