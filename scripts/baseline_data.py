"""Fashion-MNIST and the order in which an epoch visits it, for the Python side of comparisons. Needs torch alone."""
import gzip
import sys
from pathlib import Path

import torch

DEBIAN_FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


def read_idx(folder, name, header):
    """The bytes of an IDX file, gzipped or plain, after its header, as a uint8 tensor."""
    packed, plain = folder / f"{name}.gz", folder / name
    if not packed.exists() and not plain.exists():
        sys.exit(f"error: {packed} is missing\n"
                 "hint: install the Debian package dataset-fashion-mnist, or name the folder with --data")
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else plain.read_bytes()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8, offset=header)


def load_set(folder, prefix):
    """(images (n, 1, 28, 28) uint8, labels (n) int64); prefix: train or t10k."""
    images = read_idx(Path(folder), f"{prefix}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    labels = read_idx(Path(folder), f"{prefix}-labels-idx1-ubyte", 8).to(torch.int64)
    return images, labels


GAMMA = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def mix64(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def batch_order(seed, epoch, rows):
    """The permutation of an epoch: of (seed, epoch) alone, the same as lockstep's."""
    state = mix64(mix64(seed + GAMMA & MASK) + epoch & MASK)
    order = list(range(rows))
    for i in range(rows - 1, 0, -1):
        state = state + GAMMA & MASK
        j = (mix64(state) >> 32) * (i + 1) >> 32
        order[i], order[j] = order[j], order[i]
    return torch.tensor(order)
