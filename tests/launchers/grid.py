"""grid.py PROGRAM GRID: GRID compares collectives and training steps with what they must give, in 1 to 4 processes that
lockstep launch starts, with the same and with different numbers of replicas."""

import sys

from processes import Running, run_test
from training import once

LISTS = ["cpux2", "cpu/cpu", "cpux3/cpu", "cpu/cpux3/cpux2", "cpu/cpux2/cpu", "cpu/cpu/cpu/cpu"]


def grid(_, program, grid_program):
    for lists in LISTS:
        processes = lists.count("/") + 1
        out = Running([program, "launch", "-n", processes, "--", grid_program, lists]).end()
        once(out, rf"^\d\d\d+ checks by process 0 of {processes}, \d replicas$")
        print(f"{lists}: {out.strip()}")


if __name__ == "__main__":
    run_test(grid, *sys.argv[1:])
