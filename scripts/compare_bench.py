#!/usr/bin/env python3
"""What `lockstep bench` measures beside the same in stock Python torch. compare_bench.sh builds what this needs and calls
it. Runs in the Python that has torch, which then also runs the other side.

    products    of a float matrix with itself, by one replica and by two at once, one thread each. Both sides draw the same
                matrix, write into a ring of results, and hold them against a product of their own
    allreduce   sums over two replicas, or two processes of torch.distributed's Gloo, which keep to a core each or do not;
                one thread each. Of inputs whose sum is exact no element may be wrong. lockstep's replicas share their
                memory, Gloo's processes send over the loopback: that is what each has to offer on one machine
    step        a training step of LeNet in fp32 on one thread: eager, the images in either memory format. That both sides
                compute the same loss is for compare_pytorch.sh to say

Turns: lockstep, Python, lockstep, Python, ...; ratios are taken within a turn, so that what slows the machine down for a
while slows both sides of a ratio. lockstep's turn is a fresh short run of its command, since that is what a user types, and
it warms up by itself. Python's processes stay alive and idle but for their turn: starting torch anew takes seconds in which
the machine changes, and would be no part of what is measured. Each turn of theirs begins with a warm-up, too, so that
neither side is measured on cold caches.

Exit codes: 0 all is well, 1 failed or a result is wrong, 2 usage, 7 output file, 130 or 143 stopped by a signal.
"""
import argparse
import contextlib
import json
import signal
import sys
import tempfile
from pathlib import Path

import compare_bench_rows as rows
from compare_bench_parts import PARTS, Bench, fail, make_pythons
from compare_program import add_data_flag, add_json_flags, environment, positive, print_environment
from new_file import check_output, write_whole

BYTES = [8, 516_272, 16 << 20, 64 << 20]  # one float a replica; LeNet's gradients; and what no cache holds


class Stopped(BaseException):
    def __init__(self, number):
        self.code = 128 + number


def stop(number, _):
    raise Stopped(number)


def start(pythons, stack):
    """All before the first turn, so that what one of them lacks (the data, say) costs no minute."""
    for python in pythons.values():
        stack.callback(python.kill)
        python.start()


def take_turns(part, bench, pythons, turns):
    for turn in range(turns):
        part.turn(bench, pythons)
        ratios = (f"{ours / theirs:.3f}" for row in part.rows for ours, theirs in row.turns[-1:])
        print(f"{part.name}, turn {turn + 1}/{turns}: lockstep / Python {', '.join(ratios)}", file=sys.stderr)


def measure(args, parts, bench, pythons):
    print(rows.heading(), flush=True)
    for part in parts:
        try:
            take_turns(part, bench, pythons, args.turns)
        finally:  # also what was done before a signal came
            for row in rows.taken([part]):
                print(rows.line(row), flush=True)


def write_json(args, env, bench, pythons, parts, complete):
    result = dict(environment=env, turns=args.turns, complete=complete, lockstep=bench.commands,
                  python={python.name: dict(commands=python.commands, **python.versions) for python in pythons.values()},
                  idle_share=rows.idle_share(bench), rows=[rows.as_json(row) for row in rows.taken(parts)],
                  checks=[vars(check) | dict(ok=check.ok) for part in parts for check in part.checks])
    write_whole(args.json, json.dumps(result, indent=1) + "\n")


def finish(args, env, bench, pythons, parts, stopped):
    """The exit code."""
    parts = [part for part in parts if rows.taken([part])]
    checks = [check for part in parts for check in part.checks]
    ok = all(check.ok for check in checks)
    for check in checks:
        print(rows.check_line(check))
    print(f"# cores taken by Python while it was lockstep's turn: {rows.idle_share(bench):.3f}")
    print(rows.summary(rows.taken(parts)))
    print(f"# compare_bench: {'OK' if ok else 'FAILED'}{' (stopped before the end)' if stopped else ''}")
    if args.json:
        write_json(args, env, bench, pythons, parts, complete=stopped is None)
    if stopped:
        return stopped.code
    return 0 if ok else 1


def parts_list(text):
    given = text.split(",")
    unknown = sorted(set(given) - set(PARTS))
    if unknown:
        raise argparse.ArgumentTypeError(f"knows {', '.join(PARTS)}; got {', '.join(unknown)}")
    return [part for part in PARTS if part in given]


def byte_list(text):
    sizes = [positive(size) for size in text.split(",")]
    odd = [size for size in sizes if size % 4]
    if odd:
        raise argparse.ArgumentTypeError(f"takes whole floats of 4 bytes, got {odd[0]} bytes")
    return sizes


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True, metavar="PROGRAM")
    parser.add_argument("--parts", type=parts_list, default=list(PARTS), metavar="LIST", help="of products,allreduce,step; "
                        "default: all")
    parser.add_argument("--turns", type=positive, default=5, help=f"default: 5; ratios take at least {rows.RATIO_TURNS}")
    parser.add_argument("--size", type=positive, default=1000, help="rows and columns of the matrix; default: 1000")
    parser.add_argument("--iterations", type=positive, default=50, metavar="N",
                        help="products of a turn; default: 50, the chapter's")
    parser.add_argument("--bytes", type=byte_list, default=BYTES, metavar="LIST",
                        help=f"sizes of sums; default: {','.join(map(str, BYTES))}")
    parser.add_argument("--steps", type=positive, default=20, help="of a turn; default: 20")
    parser.add_argument("--batch-size", type=positive, default=256)
    add_data_flag(parser)
    parser.add_argument("--seed", type=int, default=0)
    add_json_flags(parser)
    return parser.parse_args()


def main():
    args = parse()
    check_output("--json", args.json, args.overwrite)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    env = environment(args.lockstep) | dict(seed=args.seed)
    print_environment(env)
    parts = [PARTS[name](args) for name in args.parts]
    stopped = None
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        bench = Bench(args.lockstep, args.seed, folder)
        roles = {role for part in parts for role in part.roles}
        pythons = {role: python for role, python in make_pythons(args, folder).items() if role in roles}
        try:
            start(pythons, stack)
            bench.rivals = list(pythons.values())
            measure(args, parts, bench, pythons)
        except Stopped as signalled:
            stopped = signalled
        except rows.MissingFigure as missing:
            fail(str(missing))
    sys.exit(finish(args, env, bench, pythons, parts, stopped))


if __name__ == "__main__":
    main()
