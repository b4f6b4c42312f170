"""faults.py PROGRAM LOOP [TRIALS] [SEED]: in each trial one of two to four processes fails in the middle of a run.
Every other one must name it and leave with code 10: within 5 seconds of its end, or of the timeout if it was stopped.
Then nothing may be left running. PROGRAM trains and is killed or stopped from outside; LOOP (faulty_loop.cpp) fails by
itself. They are started by hand or by `PROGRAM launch`. LOCKSTEP_FAULT_TRIALS of the environment overrides TRIALS."""

import os
import pathlib
import random
import re
import signal
import sys
import time

from listeners import check_listeners
from processes import PATIENCE, Running, fail, free_port, marked, none_left, run_test, started, until
from training import endless_training

TIMEOUT = {"stop": 8}  # seconds by fault; processes must also start within this time of each other
LONG_TIMEOUT = 60  # where it does not matter
ENDED_WITHIN = 5  # seconds after a process has ended, or after the timeout
LAUNCH_ENDS_WITHIN = 15  # it waits for others that have lost one, and from SIGTERM to SIGKILL
SILENT = r"process {process} of {count} \([^()]*pid {pid}\) does not answer(, nor does the store that it serves)?: "
BLAMED = {"error": r"process {process} failed first: the fault of process {process}",
          "leave": r"process {process} of {count} \([^()]*pid {pid}\) left before the others"}
# How they are started, what runs, how it fails: in turns.
TRIALS = [*[("by hand", "train", "kill")] * 4, ("by hand", "train", "stop"),
          *[("launch", "train", "kill")] * 3, ("launch", "train", "stop"),
          *[("by hand", "loop", "error")] * 3, *[("by hand", "loop", "exit")] * 2, ("by hand", "loop", "kill"),
          ("by hand", "loop", "stop"), ("by hand", "loop", "leave"),
          *[("launch", "loop", "error")] * 2, ("launch", "loop", "exit")]


class Trial:
    """One run. process: the one that fails."""

    def __init__(self, number, chance, program, loop):
        self.starter, what, self.fault = TRIALS[number % len(TRIALS)]
        self.count = chance.randint(2, 4)
        self.process = 0 if number % 3 == 0 else chance.randrange(self.count)
        self.trains = what == "train"
        self.timeout = TIMEOUT.get(self.fault, LONG_TIMEOUT)
        self.program = program
        self.moment = rf"^epoch +{chance.randint(1, 3)}(/\d+)? \| step {chance.randint(1, 5)}/5 "
        self.words = [program, *endless_training(self.timeout)] if self.trains else [
            loop, self.fault, self.process, chance.randint(1, 300), chance.choice(["cpu", "cpux2"]), self.timeout]
        self.text = f"trial {number}: {self.starter}, {what}, {self.fault}, process {self.process} of {self.count}"

    def run(self):
        seconds = self.run_by_hand() if self.starter == "by hand" else self.run_launched()
        none_left()
        started.clear()
        print(f"{self.text}: {seconds:.1f} s", flush=True)

    def signal(self, pid):
        os.kill(pid, signal.SIGKILL if self.fault == "kill" else signal.SIGSTOP)

    def check_blame(self, survivor, text, pid):
        pattern = "error: (rank.*: )?" + BLAMED.get(self.fault, SILENT).format(process=self.process, count=self.count,
                                                                             pid=pid)
        if not re.search(pattern, text):
            fail(f"{self.text}: process {survivor} has not said '{pattern}' but: {text[-2000:]}")

    def run_by_hand(self):
        """Returns how long the last process ran on."""
        port = free_port()
        processes = [Running(self.words, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(self.count),
                             LOCAL_WORLD_SIZE=str(self.count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
                     for rank in range(self.count)]
        failing = processes[self.process]
        pid = failing.process.pid
        if self.trains:
            processes[0].wait_for(self.moment)
            self.signal(pid)
        if self.fault == "stop":
            until(lambda: is_stopped(pid), "stopped")
        elif self.fault == "kill":
            failing.end(-signal.SIGKILL)
        else:
            failing.end(1 if self.fault == "error" else 0)
        begin = time.monotonic()
        limit = ENDED_WITHIN + TIMEOUT.get(self.fault, 0)
        for rank, survivor in enumerate(processes):
            if survivor is not failing:
                survivor.end(10, max(0, begin + limit - time.monotonic()))
                self.check_blame(rank, survivor.err.text, pid)
        seconds = time.monotonic() - begin
        if self.fault == "stop":
            os.kill(pid, signal.SIGKILL)
            failing.end(-signal.SIGKILL)
        return seconds

    def run_launched(self):
        launch = Running([self.program, "launch", "-n", self.count, "--", *self.words[1 if self.trains else 0:]])
        pid = r"\d+"
        if self.trains:
            launch.wait_for(self.moment)
            check_listeners(marked(), {"127.0.0.1", "::1"})
            found = marked(f"RANK={self.process}")
            if len(found) != 1:
                fail(f"expected one process {self.process}, found {found}")
            pid = next(iter(found))
            self.signal(pid)
        begin = time.monotonic()
        limit = LAUNCH_ENDS_WITHIN + TIMEOUT.get(self.fault, 0)
        launch.end(1 if self.fault == "error" else 10, limit if self.trains else PATIENCE)
        seconds = time.monotonic() - begin
        self.check_launch(launch.err.text)
        folder = re.search(r"the output of process.* is in (\S+)$", launch.err.text, re.M)
        if not folder:
            fail(f"{self.text}: launch does not say where the output is")
        for rank in range(self.count):
            if rank != self.process:
                own = launch.err.text if rank == 0 else (pathlib.Path(folder[1]) / f"process-{rank}.log").read_text()
                self.check_blame(rank, own, pid)
        return seconds

    def check_launch(self, text):
        """launch itself sees how a process has ended, but not that one hangs."""
        ended = {"kill": "was ended by signal 9", "error": "ended with code 1",
                 "exit": "ended with code 0 before the others were done"}.get(self.fault)
        if ended and f"error: process {self.process} {ended}" not in text:
            fail(f"{self.text}: launch does not say that process {self.process} {ended}")


def is_stopped(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def faults(_, program, loop, trials=len(TRIALS), seed=1):
    chance = random.Random(int(seed))
    for number in range(int(os.environ.get("LOCKSTEP_FAULT_TRIALS", trials))):
        Trial(number, chance, program, loop).run()


if __name__ == "__main__":
    run_test(faults, *sys.argv[1:])
