"""faults.py PROGRAM: of three processes that lockstep launch has started the first or the last is killed in the middle
of the training. The launch ends with code 10 and says which it was, and nothing is left running. Before that all
sockets that listen are on loopback."""

import os
import signal
import sys

from listeners import check_listeners
from processes import Running, fail, marked, none_left, run_test
from training import endless_training

ENDED_WITHIN = 30  # seconds


def killed(program, process):
    launch = Running([program, "launch", "-n", 3, "--", *endless_training(60)])
    launch.wait_for("step 3/5")
    check_listeners(marked(), {"127.0.0.1", "::1"})
    found = marked(f"RANK={process}")
    if len(found) != 1:
        fail(f"expected one process {process}, found {found}")
    os.kill(*found, signal.SIGKILL)
    launch.end(10, ENDED_WITHIN)
    if f"error: process {process} was ended by signal 9" not in launch.err.text:
        fail(f"launch does not say that process {process} was killed")
    none_left()


def faults(_, program):
    for process in (0, 2):
        killed(program, process)


if __name__ == "__main__":
    run_test(faults, sys.argv[1])
