"""A small training of LeNet, what it must print in several processes, and the commands of docs/scaling-out.md."""

import os
import pathlib
import re
import shlex
import textwrap

from processes import Running, fail, process_with

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/scaling-out.md"
SIZES = ["train", "--data", "synthetic", "--limit-train", "640", "--limit-test", "64", "--batch-size", "128",
         "--threads", "1"]
EXACT = ["--invariant", "--print-weights-hash"]


def training(devices, *more, epochs=1):
    """Five steps an epoch in one process of several."""
    return [*SIZES, *EXACT, "--epochs", str(epochs), "--devices", devices, "--timeout", "60", *more]


def endless_training(timeout, *more):
    return [*SIZES, "--epochs", "1000000", "--log-every", "1", "--devices", "cpu", "--timeout", str(timeout), *more]


def printed_hash(out):
    found = re.search(r"^weights sha256: ([0-9a-f]{64})$", out, re.M)
    return found[1] if found else fail(f"no hash is printed:\n{out}")


def hash_alone(program, replicas, epochs=1):
    """The hash of the weights that one process trains on this many replicas."""
    return printed_hash(Running([program, *training(f"cpux{replicas}", epochs=epochs)]).end())


def temporary_files(run):
    """Returns what a save that was cut leaves in a run's folder. A process may be writing and deleting meanwhile:
    os.walk() passes over folders that vanish."""
    return [os.path.join(folder, name) for folder, folders, files in os.walk(run)
            for name in folders + files if re.search(r"^\.|tmp|damaged", name)]


def once(out, pattern):
    count = len(re.findall(pattern, out, re.M))
    if count != 1:
        fail(f"expected one line '{pattern}', found {count} in what all processes printed:\n{out}")


def check_run(out, world, lists, weights):
    """out: what all processes printed. Only process 0 does: one plan with this world ("2 (torchrun), 2 replicas"),
    whose processes have these lists of devices, the expected hash, and one last line."""
    once(out, r"^lockstep \d.*LibTorch")
    once(out, r"^  processes ")
    once(out, rf"^  processes  {re.escape(f'{world}: {lists}')}$")
    once(out, r"^epoch 1/1 \| step 5/5 ")
    once(out, r"^weights sha256: ")
    once(out, rf"^weights sha256: {weights}$")
    once(out, rf"^test acc: .* sec/epoch on {re.escape(lists)}$")


def silent(process, count, pid):
    """The pattern of what the others say of a process that was killed, stopped or cut off."""
    return rf"process {process} of {count} \([^()]*pid {pid}\) does not answer(, nor does the store that it serves)?: "


def lose_process_1(running, variable, sign):
    """running: two processes that train without end. Process 1, the one with this variable, gets the signal. Process 0
    must name it where the launcher shows its errors. Returns the ID of process 1."""
    running.wait_for("step 3/5")
    pid = process_with(variable)
    os.kill(pid, sign)
    running.wait_for(rf"lockstep: error: rank 0 \(process 0\): {silent(1, 2, pid)}", running.err)
    return pid


def of_process_0(out, label):
    """Standard output without the labels of a launcher. label: the pattern of one, whose group is the process. A space
    may follow."""
    lines = []
    for line in out.splitlines():
        found = re.match(label, line)
        if not found:
            fail(f"a line without the label '{label}': {line}")
        if found[1] != "0":
            fail(f"process {found[1]} has printed: {line}")
        lines.append(line[found.end():])
    return textwrap.dedent("\n".join(lines) + "\n")


def page_commands(start):
    """The commands of the page that begin so, each in words. The test runs what the page shows."""
    found = [shlex.split(line) for line in PAGE.read_text().splitlines() if line.startswith(start)]
    return found or fail(f"{PAGE.name} shows no command that begins with '{start}'")


def page_launcher(start):
    """The words before `lockstep` of the page's only command that begins so."""
    commands = page_commands(start)
    if len(commands) != 1 or "lockstep" not in commands[0]:
        fail(f"{PAGE.name}: expected one command that begins with '{start}' and starts lockstep, found {commands}")
    return commands[0][:commands[0].index("lockstep")]


def page_script(start):
    """The first block of the page with a line that begins so."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.S | re.M)
    found = [block for block in blocks if re.search(rf"^{re.escape(start)}", block, re.M)]
    return found[0] if found else fail(f"{PAGE.name} shows no script with a line that begins with '{start}'")
