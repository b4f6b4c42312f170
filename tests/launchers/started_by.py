"""started_by.py CASE PROGRAM: the same training in several processes of one machine, however they are started.
  by_hand    four processes with one replica each, by --rank, --world-size and --master
  launch     lockstep launch, two processes with two replicas each
  torchrun   two processes; run this with a Python that has torch
  torchrun_restarts  the same, but one is killed: the other one names it, and torchrun starts all again
  openmpi, mpich    two processes; then one of two is stopped, and the other one names it"""

import contextlib
import os
import shutil
import signal
import sys

from processes import PATIENCE, Running, fail, free_port, process_with, run_test, skip, until
from training import (check_run, endless_training, hash_alone, lose_process_1, of_process_0, once, page_launcher,
                      printed_hash, silent, training)

TIMEOUT = 8  # seconds, of processes that wait for one that is stopped, and that look for each other at the start


def by_hand(_, program):
    port = free_port()
    running = [Running([program, *training("cpu"), "--rank", rank, "--world-size", 4, "--master", f"127.0.0.1:{port}"])
               for rank in range(4)]
    first, *others = [process.end() for process in running]
    check_run(first, "4, 4 replicas", "[cpu] x 4", hash_alone(program, 4))
    if any(others):
        fail(f"processes other than the first have printed: {others}")


def launch(scratch, program):
    out = Running([program, "launch", "-n", 2, "--", *training("cpux2")]).end()
    check_run(out, "2 (lockstep launch), 4 replicas", "[cpu, cpu] + [cpu, cpu]", hash_alone(program, 4))
    if left := os.listdir(scratch):
        fail(f"launch has left {left}")


def start_torchrun(scratch, *more):
    words = page_launcher("torchrun --standalone")
    return Running([sys.executable, "-m", "torch.distributed.run", "--log-dir", scratch / "log", "--redirects", 3,
                    *words[1:], *more])


def log_of(scratch, attempt, process, stream):
    files = list(scratch.glob(f"log/**/attempt_{attempt}/{process}/{stream}.log"))
    return files[0].read_text() if len(files) == 1 else fail(f"expected one {stream}.log per process, found {files}")


def outputs_of(scratch, attempt):
    """Returns what process 0 has printed in this life. The other one must not have printed anything."""
    first, other = [log_of(scratch, attempt, process, "stdout") for process in (0, 1)]
    if other:
        fail(f"process 1 has printed: {other}")
    return first


def torchrun(scratch, program):
    start_torchrun(scratch, program, *training("cpu")).end()
    check_run(outputs_of(scratch, 0), "2 (torchrun), 2 replicas", "[cpu] + [cpu]", hash_alone(program, 2))


def torchrun_restarts(scratch, program):
    run, epochs = scratch / "run", 60
    running = start_torchrun(scratch, "--max-restarts", 1, program,
                             *training("cpu", "--output", run, "--checkpoint-every", 1, epochs=epochs))
    until((run / "checkpoints/last").exists, "a first checkpoint")
    pid = process_with("RANK=1", "TORCHELASTIC_RESTART_COUNT=0")
    os.kill(pid, signal.SIGKILL)
    running.end()
    once(log_of(scratch, 0, 0, "stderr"), rf"^lockstep: error: rank 0 \(process 0\): {silent(1, 2, pid)}")
    out = outputs_of(scratch, 1)
    if f"resumed from {run}/checkpoints/step-" not in out:
        fail(f"the second life does not go on with the first one's run:\n{out}")
    if (found := printed_hash(out)) != (whole := hash_alone(program, 2, epochs)):
        fail(f"the weights are {found}, without a kill {whole}")


def stop_one(words, variable):
    """When a process is killed both end the others, MPICH at once and Open MPI within two seconds: too early for them
    to say which one it was. One that hangs they do not notice. variable: that of a process's number."""
    running = Running([*words, *endless_training(TIMEOUT)])
    pid = lose_process_1(running, f"{variable}=1", signal.SIGSTOP)
    with contextlib.suppress(ProcessLookupError):  # MPICH waits for it, Open MPI ends it
        os.kill(pid, signal.SIGKILL)
    if running.process.wait(PATIENCE) == 0:
        fail(f"{words[0]} has lost a process, but ends with 0")


def mpirun(program, command, launcher, flags, label, variable):
    """flags: those that depend on the machine, and those that label each line of output with its process."""
    if not shutil.which(command):
        skip(f"there is no {command}; as root, scripts/setup.sh --tests installs it")
    words = [command, *flags, *page_launcher("mpirun -n 2")[1:], program]
    out = of_process_0(Running([*words, *training("cpu")]).end(), label)
    check_run(out, f"2 ({launcher}), 2 replicas", "[cpu] + [cpu]", hash_alone(program, 2))
    stop_one(words, variable)


def openmpi(_, program):
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    mpirun(program, "mpirun.openmpi", "Open MPI", [*as_root, "--oversubscribe", "--bind-to", "none", "--tag-output"],
           r"\[[^]]*,(\d+)\]<stdout>:", "OMPI_COMM_WORLD_RANK")


def mpich(_, program):
    mpirun(program, "mpirun.mpich", "MPICH", ["-l"], r"\[(\d+)\]", "PMI_RANK")


CASES = {case.__name__: case for case in (by_hand, launch, torchrun, torchrun_restarts, openmpi, mpich)}

if __name__ == "__main__":
    run_test(CASES[sys.argv[1]], sys.argv[2])
