"""Fashion-MNIST and the order of its rows in an epoch, for the Python side of comparisons. Needs only torch."""
import gzip
import sys
from pathlib import Path

import torch

from twin.split_mix64 import batch_order

DEBIAN_FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


def read_idx(folder, name, header):
    """Returns the bytes of an IDX file, gzipped or plain, after its header, as a uint8 tensor."""
    packed, plain = folder / f"{name}.gz", folder / name
    if not packed.exists() and not plain.exists():
        sys.exit(f"error: {packed} is missing\n"
                 "hint: install the Debian package dataset-fashion-mnist, or name the folder with --data")
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else plain.read_bytes()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8, offset=header)


def load_set(folder, prefix):
    """Returns (images (n, 1, 28, 28) uint8, labels (n) int64); prefix: train or t10k."""
    images = read_idx(Path(folder), f"{prefix}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    labels = read_idx(Path(folder), f"{prefix}-labels-idx1-ubyte", 8).to(torch.int64)
    return images, labels


def epoch_batches(args, epoch, rows):
    """Returns the rows of each step of an epoch, in lockstep's order."""
    return torch.tensor(batch_order(args.seed, epoch, rows)).split(args.batch_size)
