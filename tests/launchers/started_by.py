"""started_by.py CASE PROGRAM: the same training in several processes of one machine, however they are started.
  by_hand    four processes with one replica each, by --rank, --world-size and --master
  launch     lockstep launch, two processes with two replicas each
  torchrun   two processes; run this with a Python that has torch
  openmpi, mpich    two processes"""

import os
import shutil
import sys

from processes import Running, fail, free_port, run_test, skip
from training import check_run, hash_alone, of_process_0, page_launcher, training


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


def torchrun(scratch, program):
    words = page_launcher("torchrun --standalone")
    Running([sys.executable, "-m", "torch.distributed.run", "--log-dir", scratch / "log", "--redirects", 3, *words[1:],
             program, *training("cpu")]).end()
    outputs = [list(scratch.glob(f"log/**/attempt_0/{rank}/stdout.log")) for rank in (0, 1)]
    if any(len(files) != 1 for files in outputs):
        fail(f"expected one stdout.log per process, found {outputs}")
    first, other = [files[0].read_text() for files in outputs]
    check_run(first, "2 (torchrun), 2 replicas", "[cpu] + [cpu]", hash_alone(program, 2))
    if other:
        fail(f"process 1 has printed: {other}")


def mpirun(program, command, launcher, flags, label):
    """flags: those that depend on the machine, and those that label each line of output with its process."""
    if not shutil.which(command):
        skip(f"there is no {command}; as root, scripts/setup.sh --tests installs it")
    words = page_launcher("mpirun -n 2")
    out = of_process_0(Running([command, *flags, *words[1:], program, *training("cpu")]).end(), label)
    check_run(out, f"2 ({launcher}), 2 replicas", "[cpu] + [cpu]", hash_alone(program, 2))


def openmpi(_, program):
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    mpirun(program, "mpirun.openmpi", "Open MPI", [*as_root, "--oversubscribe", "--bind-to", "none", "--tag-output"],
           r"\[[^]]*,(\d+)\]<stdout>:")


def mpich(_, program):
    mpirun(program, "mpirun.mpich", "MPICH", ["-l"], r"\[(\d+)\]")


CASES = {case.__name__: case for case in (by_hand, launch, torchrun, openmpi, mpich)}

if __name__ == "__main__":
    run_test(CASES[sys.argv[1]], sys.argv[2])
