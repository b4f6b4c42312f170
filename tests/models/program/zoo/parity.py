#!/usr/bin/env python3
"""parity.py PROGRAM_LOSSES [NETWORK...]: exports each network of zoo.py, trains it in Python and, by program_losses, in C++.

Compared bit by bit: 20 losses and the evaluation, in fp32 and bf16; then, in Python, the file with the trained weights:
its state_dict, load_state_dict(strict=True), torch.export.load, the outputs of the evaluation graph. torchvision's
networks are left out, with a notice, where there is no torchvision; LOCKSTEP_TORCHVISION may name the folder that has it.
--threads N: of both sides (1). --fixtures: the programs of ../fixtures as well. Exit codes: 0 all is equal, 1 something
differs."""
import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.export.pt2_archive._package import load_pt2

if folder := os.environ.get("LOCKSTEP_TORCHVISION"):
    sys.path.append(folder)

import zoo  # noqa: E402
import make_fixtures  # noqa: E402  (zoo.py knows its folder)

PRECISIONS = ("fp32", "bf16")


def in_cpp(program, folder, name, threads):
    """The losses and evaluations that program_losses prints, in the order of the runs."""
    command = [program, folder / f"{name}.json", str(threads), folder / f"{name}.trained.pt2"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{name}: program_losses ended with {result.returncode}: {result.stderr.strip()}")
    return [float(line) for line in result.stdout.split()]


def back(name, make, trained, path):
    """What differs when the file with the weights that C++ trained comes back."""
    state, module = trained.state_dict(), make_fixtures.made(make).model
    program = torch.export.load(path)
    module.load_state_dict({key: program.state_dict[key] for key in state})  # strict
    found = [f"{name}: {key} differs" for key in state if not torch.equal(program.state_dict[key], state[key])]
    inputs = [make_fixtures.tensor(spec, 3) for spec in make_fixtures.made(make).inputs]
    with torch.no_grad():
        expected = module.eval()(*inputs)
        got = load_pt2(str(path)).exported_programs["eval"].module()(*inputs)
    pairs = zip(*(torch.utils._pytree.tree_leaves(value) for value in (expected, got)))
    if not all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs):
        found.append(f"{name}: the evaluation graph with the trained weights gives other outputs")
    return found


def compare(program, name, make, folder, threads):
    begun = time.monotonic()
    numbers, modules = make_fixtures.write(name, make, folder, PRECISIONS)
    in_python = [value for run in numbers["runs"] for value in (*run["losses"], run["evaluation"])]
    own = in_cpp(program, folder, name, threads)
    each = len(in_python) // len(PRECISIONS)
    found = []
    for i, precision in enumerate(PRECISIONS):
        pairs = list(zip(in_python, own))[i * each:(i + 1) * each]
        same = sum(a == b or a != a and b != b for a, b in pairs)
        apart = max(abs(a - b) / max(abs(a), 1e-30) for a, b in pairs)
        print(f"{name:<32} {precision}: {same} of {each} with Python's bits, last loss {pairs[-2][0]:.6g}"
              + (f", at most {apart:.2g} apart" if same < each else ""), flush=True)
        if same < each or len(own) != len(in_python):
            found.append(f"{name}, {precision}: {each - same} of {each} numbers differ")
    found += back(name, make, modules[0], folder / f"{name}.trained.pt2")
    print(f"{name:<32} {time.monotonic() - begun:.1f} s", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program", type=Path, metavar="PROGRAM_LOSSES")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(zoo.ZOO))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fixtures", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    # Python's shortcut for evaluation rounds otherwise than the layers that it replaces, which the graph has.
    torch.backends.mha.set_fastpath_enabled(False)
    networks = zoo.ZOO | (make_fixtures.CASES if arguments.fixtures else {})
    if importlib.util.find_spec("torchvision") is None:
        print("there is no torchvision: its networks are left out (LOCKSTEP_TORCHVISION names a folder that has it)")
        networks = {name: make for name, make in networks.items() if not name.startswith("torchvision_")}
    unknown = [name for name in arguments.networks if name not in networks]
    if unknown:
        parser.error(f"there is no network {unknown[0]}: {', '.join(networks)}")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.networks or networks:
            found += compare(arguments.program.resolve(), name, networks[name], Path(folder), arguments.threads)
    print("\n".join(found) or "all is equal")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
