"""The Python side of python_twin.sh: makes a small data set, and evaluates saved weights with the chapters' networks.

Needs torch alone.
"""
import argparse
import re
import struct
import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/compare"))
from twin.lenet import LeNetTwin  # noqa: E402
from twin.resnet18 import resnet18  # noqa: E402
from twin.safetensors_file import load  # noqa: E402

TRAIN, TEST = 64, 100


def images(rows):
    """(rows, 28, 28) uint8 and (rows) uint8: each class is brighter in its own rows."""
    labels = torch.arange(rows) % 10
    noise = (torch.arange(rows * 784) * 7919 % 101).view(rows, 28, 28)
    bright = (torch.arange(28).view(1, 28, 1) // 3 == labels.view(rows, 1, 1)) * 120
    return (noise + bright).to(torch.uint8), labels.to(torch.uint8)


def write_data(folder):
    for prefix, rows in (("train", TRAIN), ("t10k", TEST)):
        X, y = images(rows)
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(
            struct.pack(">4i", 0x803, rows, 28, 28) + bytes(X.flatten().tolist()))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, rows) + bytes(y.tolist()))


def evaluate(path):
    tensors, metadata = load(path)
    net = {"lenet": lambda: LeNetTwin(0), "resnet18": resnet18}[metadata["model"]]()
    net.load_state_dict(tensors)  # strict: all names and shapes must match
    net.eval()
    X, y = images(TEST)
    with torch.no_grad():
        X = X.unsqueeze(1).to(torch.float32) / 255
        logits = net.logits(X) if hasattr(net, "logits") else net(X)
        loss = F.cross_entropy(logits, y.long()).item()
        top = logits.topk(5).indices == y.long().unsqueeze(1)
    return loss, top[:, 0].sum().item(), top.sum().item()


def check(path, text):
    loss, top1, top5 = evaluate(path)
    printed = re.search(rf"test loss ([\d.]+) \| top1 [\d.]+% \((\d+) of {TEST}\) \| top5 [\d.]+% \((\d+)\)", text)
    print(f"Python: loss {loss:.4f}, top1 {top1}, top5 {top5}")
    # lockstep prints four digits; counts are exact.
    same_loss = printed and abs(float(printed[1]) - loss) <= 1e-4 * max(1, loss)
    if not same_loss or (int(printed[2]), int(printed[3])) != (top1, top5):
        sys.exit(f"differs from {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write-data", type=Path, metavar="DIR")
    parser.add_argument("--check", type=Path, metavar="WEIGHTS")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--eval", type=Path, metavar="FILE", help="what `lockstep eval` printed")
    args = parser.parse_args()
    if args.write_data:
        write_data(args.write_data)
    else:
        check(args.check, args.eval.read_text())


if __name__ == "__main__":
    main()
