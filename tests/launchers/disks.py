"""disks.py CASE PROGRAM: a run whose folder fails while it saves: the disk is full, the folder becomes read-only, or it
is taken away. The run ends with code 7 and says which checkpoint it cannot write and why; the ones before it are whole,
and the next start goes on from them. The first two need mounts: they run in a namespace of their own, or are
skipped."""

import os
import re
import shutil
import subprocess
import sys

from processes import Running, fail, run_test, skip, until
from training import SIZES, temporary_files

IN_NAMESPACE = "LAUNCHERS_TEST_NAMESPACE"
ENOUGH = 20  # steps of the run that goes on
TRAIN = [*SIZES, "--epochs", "1000000", "--log-every", "1", "--momentum", ".9", "--checkpoint-every", "1"]
UNSHARE = ["unshare", "--mount", "--map-root-user"]


def enter_namespace():
    """Starts this test again where mounts are its own and end with it."""
    if IN_NAMESPACE in os.environ:
        return
    if not shutil.which("unshare") or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0:
        skip("mounting needs a namespace of its own (unshare), which is not allowed here")
    os.execvpe(UNSHARE[0], [*UNSHARE, sys.executable, *sys.argv], {**os.environ, IN_NAMESPACE: "1"})


def mount(*words):
    if subprocess.run(["mount", *map(str, words)], capture_output=True).returncode != 0:
        skip(f"mount {' '.join(map(str, words))} is not allowed here")


def start(program, run, *more):
    return Running([program, *TRAIN, "--devices", "cpu", "--output", run, *more])


def steps_in(run):
    return sorted(int(path.name[5:]) for path in (run / "checkpoints").glob("step-*"))


def check_failed(running, run, why):
    """The run ends with what it could not write first, and names the first checkpoint that it could not write: in the
    error, or in a warning if the metrics failed before."""
    running.end(7)
    last = steps_in(run)[-1] if run.exists() else None
    failed = re.findall(rf"(error|warning): cannot write ([^\n]*{re.escape(str(run))}/[^\n]*): {why}$", running.err.text,
                        re.M)
    named = {how: [int(step) for other, what in failed if other == how
                   for step in re.findall(r"checkpoints/step-(\d+)", what)] for how in ("error", "warning")}
    steps = named["error"] + named["warning"]
    if ("error" not in dict(failed) or not steps or named["error"] not in ([], [min(steps)])
            or (last and min(steps) != last + 1)):
        fail(f"checkpoint {last} is there, but the error is: {running.err.text}")


def check_clean(run):
    if left := temporary_files(run):
        fail(f"left behind: {left}")


def check_kept(program, run):
    """Checks that what is there is whole, and a run goes on from it, which leaves nothing else."""
    steps = steps_in(run)
    Running([program, "checkpoint", "verify", run]).end()
    out = start(program, run, "--resume", "auto", "--limit-steps", steps[-1] + ENOUGH).end()
    if f"({steps[-1]} of {steps[-1] + ENOUGH} steps done)" not in out:
        fail(f"the next run does not go on from step {steps[-1]}:\n{out}")
    check_clean(run)


def full(scratch, program):
    disk, run = scratch / "disk", scratch / "disk/run"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", "size=3m", "tmpfs", disk)  # two checkpoints of LeNet, but not three
    check_failed(start(program, run), run, "No space left on device")
    check_clean(run)
    mount("-o", "remount,size=30m", disk)
    check_kept(program, run)


def read_only(scratch, program):
    disk, run = scratch / "disk", scratch / "disk/run"
    disk.mkdir()
    mount("-t", "tmpfs", "tmpfs", disk)
    mount("-o", "remount,ro", disk)
    refused = start(program, run)
    refused.end(7)
    if f"cannot make the run folder '{run}': Read-only file system" not in refused.err.text:
        fail(f"a read-only folder is refused with: {refused.err.text}")
    mount("-o", "remount,rw", disk)
    running = start(program, run)
    until(lambda: (run / "checkpoints/last").exists(), "a first checkpoint")
    mount("--bind", run / "checkpoints", run / "checkpoints")
    mount("-o", "remount,bind,ro", run / "checkpoints")
    check_failed(running, run, "Read-only file system")
    subprocess.run(["umount", run / "checkpoints"], check=True)
    check_kept(program, run)


def vanished(scratch, program):
    run, elsewhere = scratch / "run", scratch / "elsewhere"
    running = start(program, run)
    until(lambda: (run / "checkpoints/last").exists(), "a first checkpoint")
    run.rename(elsewhere)
    check_failed(running, run, "No such file or directory")
    check_kept(program, elsewhere)


CASES = {case.__name__: case for case in (full, read_only, vanished)}

if __name__ == "__main__":
    if sys.argv[1] != "vanished":
        enter_namespace()
    run_test(CASES[sys.argv[1]], sys.argv[2])
