#!/usr/bin/env python3
"""Compares one training step of lockstep and of its Python twin on a device with lockstep's step on the host in double.

All start from the same weights, take the same rows, and compute in fp32 with TF32 off, with kernels that repeat their
results and are not chosen by timing. The learning rate is large, so that
the weights after the step are mostly its gradients. ResNet-18 starts from torch's default weights: the chapters' weights
are small beside their biases, and float sums lose too much. For each tensor that the step changes (parameters and
batch-norm statistics, except biases before a batch normalisation):

    error = largest difference from the double weights / largest change by the step in double

The error may be at most 3 times that of the Python twin in fp32 on the host, or 1e-5. (The twin uses contiguous images:
torch's batch normalisation for channels_last on CPUs adds floats one after the other and loses a thousand times as much.)
Where a pre-activation is within rounding of 0, two correct computations may take different sides of a ReLU, and gradients
before it differ by far more than rounding. So the median over several seeds counts, against the host's worst seed.

Exit codes: 0 all is well, 1 an error is too large, 2 usage.
"""
import argparse
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import torch  # noqa: E402

from common import add_data_flag  # noqa: E402
from twin.data import load_set  # noqa: E402
from twin.training import Training, make_twin, set_arithmetic  # noqa: E402
from twin.safetensors_file import load  # noqa: E402

RECIPES = dict(lenet=["--recipe", "lenet-scratch"],
               resnet18=["--recipe", "resnet18-warmup", "--momentum", "0", "--weight-decay", "0", "--schedule", "constant",
                         "--warmup-epochs", "0"])
LR = 100.0
BATCHES, TEST_ROWS = 4, 10  # of the small data set; evaluation in double takes long
FACTOR, FLOOR = 3.0, 1e-5
NO_CHANGE = 1e-9  # relative to the largest change: only rounding in double


def errors(after, exact, start):
    """Returns the relative error of each tensor that changes. exact: weights after the step in double; start: before it."""
    changes = {name: (exact[name] - start[name].double()).abs().max().item() for name in exact}
    return {name: (after[name].double() - exact[name]).abs().max().item() / change
            for name, change in changes.items() if change > NO_CHANGE * max(changes.values())}


def judge(found, host):
    """Returns the tensors whose error is too large. found, host: for each seed a dict of errors by tensor."""
    def over(seeds, name):
        return [errors_of[name] for errors_of in seeds]

    def is_right(name):
        return statistics.median(over(found, name)) <= max(FACTOR * max(over(host, name)), FLOOR)

    return [name for name in host[0] if not is_right(name)]


def floats(tensors):
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


def write_small_data(args, folder):
    for prefix, rows in (("train", BATCHES * args.batch_size), ("t10k", TEST_ROWS)):
        images, labels = load_set(args.data, prefix)
        rows = min(rows, len(labels))
        pixels, classes = bytes(images[:rows].flatten().tolist()), bytes(labels[:rows].tolist())
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, rows, 28, 28) + pixels)
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, rows) + classes)


def lockstep_step(args, folder, seed, *flags):
    path = folder / "weights.safetensors"
    step = subprocess.run([args.lockstep, "train", *RECIPES[args.model], "--seed", str(seed), "--data", str(folder),
                           "--batch-size", str(args.batch_size), "--lr", str(LR), "--epochs", "1", "--limit-steps", "1",
                           "--quiet", "--save", str(path), "--overwrite", *flags], stdout=subprocess.DEVNULL)
    if step.returncode:
        sys.exit(1)  # lockstep has said why
    return floats(load(path)[0])


def twin_step(args, folder, seed, device):
    """Takes the Python twin's step. Returns (weights before, weights after)."""
    options = argparse.Namespace(model=args.model, seed=seed, initialization="torch", momentum=0.0, weight_decay=0.0,
                                 memory_format="contiguous", precision="fp32", device=device, data=folder,
                                 limit_train=None, batch_size=args.batch_size, cudnn_benchmark=False)
    set_arithmetic(options)
    run = Training(options)
    start = {name: tensor.cpu().clone() for name, tensor in floats(make_twin(options).weights()).items()}
    run.step(run.batches(0)[0], LR)
    return start, {name: tensor.cpu() for name, tensor in floats(run.twin.weights()).items()}


def set_deterministic():
    """Python's counterpart of `lockstep train --deterministic`."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it at its first call
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True


def compare(args):
    """Returns the errors of the twin on the host, of lockstep on the device, and of the twin there; one dict per seed."""
    found = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_small_data(args, folder)
        for seed in range(args.seeds):
            exact = lockstep_step(args, folder, seed, "--devices", "cpu", "--precision", "fp64")
            start, host = twin_step(args, folder, seed, "cpu")
            device = lockstep_step(args, folder, seed, "--devices", args.device, "--deterministic")
            _, twin = twin_step(args, folder, seed, args.device)
            for seeds, after in zip(found, (host, device, twin)):
                seeds.append(errors(after, exact, start))
    return found


def worst(seeds):
    """Returns (largest median error over the seeds, its tensor)."""
    return max((statistics.median(errors_of[name] for errors_of in seeds), name) for name in seeds[0])


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True, metavar="PROGRAM")
    parser.add_argument("--model", choices=RECIPES, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=33)
    add_data_flag(parser)
    return parser.parse_args()


def main():
    args = parse()
    set_deterministic()
    host, device, twin = compare(args)
    wrong = {f"lockstep {args.device}": judge(device, host), f"Python {args.device}": judge(twin, host)}
    for who, seeds in (("Python cpu", host), (f"lockstep {args.device}", device), (f"Python {args.device}", twin)):
        error, name = worst(seeds)
        print(f"{args.model}, {who}: error {error:.1e} at most, in {name} (median of {args.seeds} seeds)")
    for who, names in wrong.items():
        if names:
            print(f"{args.model}, {who}: wrong in {', '.join(names)}")
    sys.exit(1 if any(wrong.values()) else 0)


if __name__ == "__main__":
    main()
