"""faults.py PROGRAM LOOP [TRIALS] [SEED]: in each trial one of two to four processes fails in the middle of a run.
Every other one must name it and leave with code 10: within 5 seconds of its end, or of the timeout if it was stopped.
Then no process, port or shared memory may be left. PROGRAM trains and is killed or stopped from outside; LOOP
(faulty_loop.cpp) fails by itself, with "parts" between the two collectives of a sharded step. A sharded training
leaves a whole checkpoint, from which another number of processes goes on. They are started by hand or by
`PROGRAM launch`. LOCKSTEP_FAULT_TRIALS of the environment overrides TRIALS. Where one calls another collective
(differ), the error of every process's own wait names both calls."""

import os
import pathlib
import random
import re
import select
import signal
import socket
import sys
import time

from listeners import check_listeners
from processes import PATIENCE, Running, fail, free_port, marked, none_left, run_test, started, until, variable_of
from training import endless_training, silent, temporary_files

TIMEOUT = {"stop": 8}  # seconds by fault; processes must also start within this time of each other
LONG_TIMEOUT = 60  # where it does not matter
ENDED_WITHIN = 5  # seconds after a process has ended, or after the timeout
LAUNCH_ENDS_WITHIN = 15  # seconds after the first end of a process: 7 by design, and some on a busy machine
SHARED_MEMORY = re.compile(r"torch_|nccl-")  # names of files of torch and NCCL
BLAMED = {"error": r"process {0} failed first: the fault of process {0}".format,
          "leave": r"process {} of {} \([^()]*pid {}\) left before the others".format,
          "differ": (r"the processes wait for different collectives: (?=.*process {} for allreduce \d+ of 5 float32)"
                     r".*process \d for allreduce \d+ of 10,007 float32").format}
ENDS_WITH = {"kill": -signal.SIGKILL, "error": 1, "differ": 10}  # else 0
# How they are started, what runs, how it fails: in turns. The first five are of different kinds.
TRIALS = [("by hand", "train", "kill"), ("launch", "loop", "error"), ("by hand", "loop", "exit"),
          ("launch", "train", "kill"), ("by hand", "train", "stop"), *[("by hand", "train", "kill")] * 2,
          *[("launch", "train", "kill")] * 2, ("launch", "train", "stop"), *[("by hand", "loop", "error")] * 2,
          ("by hand", "loop", "exit"), ("by hand", "loop", "kill"), ("by hand", "loop", "stop"),
          ("by hand", "loop", "leave"), ("launch", "loop", "error"), ("launch", "loop", "exit"),
          ("launch", "loop", "kill"), ("launch", "loop", "stop"),
          *[("by hand", "loop", "differ")] * 3,
          ("by hand", "parts", "kill"), ("launch", "parts", "kill"), ("by hand", "parts", "exit"),
          ("by hand", "parts", "error"), ("by hand", "parts", "stop"),
          ("by hand", "sharded", "kill"), ("launch", "sharded", "kill"), ("by hand", "sharded", "stop")]


class Watched:
    """A process that this test has not started itself."""

    def __init__(self, pid):
        self.pid, self.handle, self.port = pid, os.pidfd_open(pid), int(variable_of(pid, "MASTER_PORT"))

    def must_end(self, latest):
        """Waits until it has ended. Returns when that was."""
        if not select.select([self.handle], [], [], max(0, latest - time.monotonic()))[0]:
            fail(f"process {self.pid} still runs")
        return time.monotonic()

    def close(self):
        os.close(self.handle)


class Trial:
    """One run. process: the one that fails."""

    def __init__(self, number, chance, program, loop, scratch):
        self.starter, what, self.fault = TRIALS[number % len(TRIALS)]
        self.count = chance.randint(2, 4)
        self.process = 0 if number % 3 == 0 else chance.randrange(self.count)
        self.trains = what in ("train", "sharded")
        self.folder = scratch / f"run-{number}" if what == "sharded" else None
        self.timeout = TIMEOUT.get(self.fault, LONG_TIMEOUT)
        self.limit = ENDED_WITHIN + TIMEOUT.get(self.fault, 0)
        self.program = program
        first = 2 if self.folder else 1  # the first epoch with a checkpoint
        self.moment = rf"^epoch +{chance.randint(first, 3)}(/\d+)? \| step {chance.randint(1, 5)}/5 "
        self.words = [program, *endless_training(self.timeout)] if self.trains else [
            loop, self.fault, self.process, chance.randint(1, 300), chance.choice(["cpu", "cpux2"]), self.timeout]
        if what == "parts":
            self.words.append("parts")
        if self.folder:
            self.words += ["--optimizer", "adamw", "--shard", chance.choice(["optimizer", "gradients"]), "--output",
                           self.folder, "--checkpoint-every", "1"]
        self.text = f"trial {number}: {self.starter}, {what}, {self.fault}, process {self.process} of {self.count}"

    def run(self):
        before = shared_memory()
        port, seconds = self.run_by_hand() if self.starter == "by hand" else self.run_launched()
        none_left()
        until(lambda: is_free(port), f"port {port} free again")
        until(lambda: shared_memory() <= before, "free of the trial's shared memory")
        if self.folder:
            self.go_on()
        started.clear()
        print(f"{self.text}: {seconds:.1f} s", flush=True)

    def go_on(self):
        """The newest checkpoint is whole, and three replicas of one process take another step from there."""
        Running([self.program, "checkpoint", "verify", self.folder]).end()
        last = self.folder / "checkpoints" / "last"
        steps = int(os.readlink(last).removeprefix("step-"))
        Running([self.program, "train", "--resume", self.folder, "--devices", "cpux3", "--limit-steps",
                 steps + 1]).end()
        if os.readlink(last) != f"step-{steps + 1:08}":
            fail(f"{self.text}: the run has not gone on from step {steps}: the newest is {os.readlink(last)}")
        if left := temporary_files(self.folder):
            fail(f"{self.text}: left behind: {left}")

    def signal(self, pid):
        os.kill(pid, signal.SIGKILL if self.fault == "kill" else signal.SIGSTOP)

    def check_blame(self, survivor, text, pid):
        blamed = BLAMED.get(self.fault, silent)(self.process, self.count, pid)
        pattern = f"error: (rank.*: )?{blamed}"
        if not re.search(pattern, text):
            fail(f"{self.text}: process {survivor} has not said '{pattern}' but: {text[-2000:]}")

    def run_by_hand(self):
        """Returns the port at which they met, and how long the last process ran on."""
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
        else:
            failing.end(ENDS_WITH.get(self.fault, 0))
        if self.fault == "differ":
            self.check_blame(self.process, failing.err.text, pid)
        begin = time.monotonic()
        for rank, survivor in enumerate(processes):
            if survivor is not failing:
                survivor.end(10, max(0, begin + self.limit - time.monotonic()))
                self.check_blame(rank, survivor.err.text, pid)
        seconds = time.monotonic() - begin
        if self.fault == "stop":
            os.kill(pid, signal.SIGKILL)
            failing.end(-signal.SIGKILL)
        return port, seconds

    def run_launched(self):
        """Returns the same."""
        launch = Running([self.program, "launch", "-n", self.count, "--", *self.words[1 if self.trains else 0:]])
        if self.trains:
            launch.wait_for(self.moment)
            check_listeners(marked(), {"127.0.0.1", "::1"})
        processes = self.watch_all()
        failing = processes[self.process]
        if self.trains:
            self.signal(failing.pid)
        begin, ends = self.wait_for_ends(processes)
        first = min(ends) if self.fault == "stop" else begin
        launch.end(1 if self.fault == "error" else 10, max(0, first + LAUNCH_ENDS_WITHIN - time.monotonic()))
        self.check_launch(launch.err.text)
        self.check_outputs(launch.err.text, failing.pid)
        for process in processes:
            process.close()
        return failing.port, max(ends) - begin

    def watch_all(self):
        """Returns the processes of the launch, each seen as soon as it is there: a loop may fail soon after."""
        watched = {}

        def all_are_seen():
            for rank in range(self.count):
                if rank not in watched and (found := list(marked(f"RANK={rank}"))):
                    watched[rank] = Watched(found[0])
            return len(watched) == self.count

        until(all_are_seen, "all processes of the launch")
        return [watched[rank] for rank in range(self.count)]

    def wait_for_ends(self, processes):
        """Returns when the one has failed, and when the other ones have ended."""
        failing = processes[self.process]
        if self.fault == "stop":
            until(lambda: is_stopped(failing.pid), "stopped")
            begin = time.monotonic()
        else:
            begin = failing.must_end(time.monotonic() + PATIENCE)
        return begin, [process.must_end(begin + self.limit) for process in processes if process is not failing]

    def check_outputs(self, text, pid):
        """text: what launch has written to standard error, process 0's included."""
        folder = re.search(r"the output of process.* is in (\S+)$", text, re.M)
        if not folder:
            fail(f"{self.text}: launch does not say where the output is")
        for rank in range(self.count):
            if rank != self.process:
                own = text if rank == 0 else (pathlib.Path(folder[1]) / f"process-{rank}.log").read_text()
                self.check_blame(rank, own, pid)

    def check_launch(self, text):
        """launch itself sees how a process has ended, but not that one hangs."""
        ended = {"kill": "was ended by signal 9", "error": "ended with code 1",
                 "exit": "ended with code 0 before the others were done"}.get(self.fault)
        if ended and f"error: process {self.process} {ended}" not in text:
            fail(f"{self.text}: launch does not say that process {self.process} {ended}")


def is_stopped(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def is_free(port):
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            own.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if SHARED_MEMORY.match(name)}


def faults(scratch, program, loop, trials=len(TRIALS), seed=1):
    chance = random.Random(int(seed))
    for number in range(int(os.environ.get("LOCKSTEP_FAULT_TRIALS", trials))):
        Trial(number, chance, program, loop, scratch).run()


if __name__ == "__main__":
    run_test(faults, *sys.argv[1:])
