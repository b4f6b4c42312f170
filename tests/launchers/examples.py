"""examples.py LAUNCHER PROGRAM OWN_LOOP OWN_MODEL REGRESSION OTHER...: the examples, as they are, alone and in two
processes that lockstep launch or torchrun (with a Python that has torch) starts. Process 0 alone prints. own_model and
regression print what they print alone: the means and counts of all rows. So do the others, which also print the same
on one replica. Those with checkpoints go on from that of process 0."""

import os
import sys
import tempfile

from processes import Running, fail, run_test
from training import once, page_launcher

IN_DOUBLE = {"character_gpt": ["fp64"]}  # the words that make it so; the others are anyway


def in_two_processes(launcher, program, *command):
    if launcher == "launch":
        return Running([program, "launch", "-n", 2, "--", *command]).end()
    return Running([sys.executable, "-m", "torch.distributed.run", *page_launcher("torchrun --standalone")[1:],
                    *command]).end()


def check_loop(out, replicas):
    once(out, rf"^loss .* on {replicas} replicas$")
    if out.count("\n") != 1:
        fail(f"own_loop has printed more than one line:\n{out}")


def check_same(launcher, program, example):
    """They compute in double, and print as many decimals as the sums' rounding leaves alone."""
    words = IN_DOUBLE.get(os.path.basename(example), [])
    alone = Running([example, "cpu", *words]).end()
    if not alone:
        fail(f"{example} prints nothing")
    for how, out in (("on two replicas", Running([example, "cpux2", *words]).end()),
                     ("in two processes", in_two_processes(launcher, program, example, "cpu", *words))):
        if out != alone:
            fail(f"{os.path.basename(example)} prints {how}\n{out}but on one replica\n{alone}")


def check_resume(program, example, epochs):
    """A run that ends and goes on, in two processes with a disk each: process 0 alone finds a checkpoint on its own."""
    with tempfile.TemporaryDirectory() as folder:
        def until(epochs):
            words = f'exec "$0" cpu {epochs} "{folder}/disk$RANK"'
            return Running([program, "launch", "-n", 2, "--", "/bin/sh", "-c", words, example]).end().splitlines()
        out = until(epochs)[:-1] + until(epochs + 2)
        if (found := os.listdir(folder)) != ["disk0"]:
            fail(f"{example} has written {found}, not process 0 alone")
    whole = Running([example, "cpux2", epochs + 2]).end().splitlines()
    if out != whole:
        fail(f"{os.path.basename(example)} prints, when it goes on,\n{out}\nbut in one run\n{whole}")


def examples(_, launcher, program, *paths):
    own_loop, own_model, regression, *others = (os.path.abspath(path) for path in paths)
    for example in others:
        check_same(launcher, program, example)
    out = Running([own_loop]).end()
    check_loop(out, 2)
    if (again := Running([own_loop]).end()) != out:  # its replicas are threads of one process
        fail(f"own_loop prints\n{again}but before\n{out}")
    for devices, replicas in (("cpu", 2), ("cpux2", 4))[:1 if launcher == "torchrun" else 2]:
        check_loop(in_two_processes(launcher, program, own_loop, devices), replicas)
    for example, result in ((own_model, "accuracy"), (regression, "rmse")):
        alone, out = Running([example, "cpux2"]).end(), in_two_processes(launcher, program, example, "cpu")
        once(alone, rf"^{result} .* on 2 replicas$")
        if out != alone:
            fail(f"{example} prints in two processes\n{out}but alone\n{alone}")
    if launcher == "launch":
        check_resume(program, own_model, 10)
        check_resume(program, next(path for path in others if path.endswith("augmentation")), 12)


if __name__ == "__main__":
    run_test(examples, *sys.argv[1:])
