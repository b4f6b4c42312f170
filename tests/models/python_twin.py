"""The Python side of python_twin.sh: evaluates saved weights with the chapters' networks.

Needs torch alone.
"""
import argparse
import re
import sys
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/compare"))
from small_data import ROWS, classes, pixels  # noqa: E402
from twin.lenet import LeNetTwin  # noqa: E402
from twin.resnet18 import resnet18  # noqa: E402
from twin.safetensors_file import load  # noqa: E402

TEST = ROWS["t10k"]


def images(rows):
    """(rows, 28, 28) uint8 and (rows) uint8, those of small_data.py."""
    return (torch.frombuffer(bytearray(pixels(rows)), dtype=torch.uint8).view(rows, 28, 28),
            torch.frombuffer(bytearray(classes(rows)), dtype=torch.uint8))


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
    parser.add_argument("--check", type=Path, metavar="WEIGHTS")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--eval", type=Path, metavar="FILE", help="what `lockstep eval` printed")
    args = parser.parse_args()
    check(args.check, args.eval.read_text())


if __name__ == "__main__":
    main()
