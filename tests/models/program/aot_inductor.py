#!/usr/bin/env python3
"""aot_inductor.py PROGRAM: what lockstep trains compiles by AOTInductor, and computes what the trained module computes.

A small network is exported, trained by `PROGRAM train --save trained.pt2`, compiled from that file, and loaded without its
Python. Exit codes: 0 equal but for rounding, 1 not, 77 this Python cannot compile (no compiler, no headers): skipped."""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.export.pt2_archive._package import load_pt2

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))
import export_program as exporter  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

CLASSES, ROWS = 3, 32


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Dropout(.25), nn.Linear(256, CLASSES))


def train(program, folder):
    """Returns the trained module, and the program with its weights."""
    net = network()
    exporter.export_program(net, (torch.rand(4, 1, 8, 8),), folder / "net.pt2")
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(ROWS, 1, 8, 8, generator=generator)
    y = torch.randint(CLASSES, (ROWS,), generator=generator)
    save_file({"train.X": X, "train.y": y, "test.X": X.clone(), "test.y": y.clone()}, folder / "data.safetensors")
    command = [program, "train", "--program", "net.pt2", "--data", "data.safetensors", "--epochs", "2", "--batch-size", "8",
               "--devices", "cpu", "--lr", ".1", "--quiet", "--save"]
    for name in ("trained.pt2", "trained.safetensors"):
        subprocess.run([*command, name], cwd=folder, check=True)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    net.load_state_dict(load_file(folder / "trained.safetensors"))  # strict
    if all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items()):
        sys.exit("the weights are as they were before the training")
    return net.eval(), load_pt2(str(folder / "trained.pt2")).exported_programs["eval"]


def compiled(program, path):
    return torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(program, package_path=str(path)))


def why_none(folder):
    """Why this Python compiles nothing at all; None if it does."""
    try:
        compiled(torch.export.export(nn.Linear(2, 2), (torch.rand(2, 2),)), folder / "linear.pt2")
    except Exception as error:  # whatever a compiler or its absence makes of it
        return str(error).strip().splitlines()[0]


def main():
    if not any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++"))):
        print("skipped: there is no C++ compiler")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")
        module, program = train(os.path.abspath(sys.argv[1]), folder)
        try:
            run = compiled(program, folder / "compiled.pt2")
        except Exception:
            if reason := why_none(folder):
                print(f"skipped: AOTInductor cannot compile here: {reason}")
                return 77
            raise
        for rows in (4, 7):
            X = torch.rand(rows, 1, 8, 8, generator=torch.Generator().manual_seed(rows))
            with torch.no_grad():
                torch.testing.assert_close(run(X), module(X), rtol=1e-5, atol=1e-6)
    print("compiled by AOTInductor, the trained program computes what the trained module computes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
