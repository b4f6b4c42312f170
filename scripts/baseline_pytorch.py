#!/usr/bin/env python3
"""The multi-GPU chapter's scratch LeNet in eager Python torch: what `lockstep train --devices cpu` is compared with.

Network, loss and update are the chapter's own lines. Initial weights and the order of rows are those of
`lockstep train`, so that both do the same arithmetic on the same numbers. Like lockstep it keeps the whole data set in
memory as uint8 and reads the loss only where it is printed, so that what is compared is the training, not a loader.

    baseline_pytorch.py --epochs 10              train; prints what `lockstep train` prints
    baseline_pytorch.py --turns                  be a contender of compare_turns.py

Needs torch alone (no numpy).
"""
import argparse
import ctypes
import gzip
import hashlib
import json
import os
import platform
import sys
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

DEBIAN_FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
NAMES = ["W1", "b1", "W2", "b2", "W3", "b3", "W4", "b4"]

# ---- the chapter


def init_params(seed):
    torch.manual_seed(seed)
    scale = 0.01
    W1 = torch.randn(size=(20, 1, 3, 3)) * scale
    b1 = torch.zeros(20)
    W2 = torch.randn(size=(50, 20, 5, 5)) * scale
    b2 = torch.zeros(50)
    W3 = torch.randn(size=(800, 128)) * scale
    b3 = torch.zeros(128)
    W4 = torch.randn(size=(128, 10)) * scale
    b4 = torch.zeros(10)
    return [W1, b1, W2, b2, W3, b3, W4, b4]


def lenet(X, params):
    h1_conv = F.conv2d(input=X, weight=params[0], bias=params[1])
    h1_activation = F.relu(h1_conv)
    h1 = F.avg_pool2d(input=h1_activation, kernel_size=(2, 2), stride=(2, 2))
    h2_conv = F.conv2d(input=h1, weight=params[2], bias=params[3])
    h2_activation = F.relu(h2_conv)
    h2 = F.avg_pool2d(input=h2_activation, kernel_size=(2, 2), stride=(2, 2))
    h2 = h2.reshape(h2.shape[0], -1)
    h3_linear = torch.mm(h2, params[4]) + params[5]
    h3 = F.relu(h3_linear)
    y_hat = torch.mm(h3, params[6]) + params[7]
    return y_hat


loss = nn.CrossEntropyLoss(reduction="none")


def sgd(params, lr, batch_size):
    with torch.no_grad():
        for param in params:
            param -= lr * param.grad / batch_size
            param.grad.zero_()


# ---- the data, and the order in which an epoch visits it


def read_idx(folder, name, header):
    """The bytes of an IDX file, gzipped or plain, after its header, as a uint8 tensor."""
    packed, plain = folder / f"{name}.gz", folder / name
    if not packed.exists() and not plain.exists():
        sys.exit(f"error: {packed} is missing\n"
                 "hint: install the Debian package dataset-fashion-mnist, or name the folder with --data")
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else plain.read_bytes()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8, offset=header)


def load_set(folder, prefix):
    images = read_idx(folder, f"{prefix}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    labels = read_idx(folder, f"{prefix}-labels-idx1-ubyte", 8).to(torch.int64)
    return images, labels


def gather(data, rows):
    images, labels = data
    return images.index_select(0, rows).to(torch.float32).div_(255), labels.index_select(0, rows)


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


# ---- training


class Training:
    def __init__(self, args):
        self.args = args
        folder = Path(args.data)
        images, labels = load_set(folder, "train")
        limit = args.limit_train or len(labels)
        self.train = images[:limit], labels[:limit]
        self.test = load_set(folder, "t10k")
        self.params = [param.requires_grad_() for param in init_params(args.seed)]
        # Over the rows since the last take_loss(); a tensor, since reading a number each step is what one does not do.
        self.loss_sum, self.rows = torch.zeros((), dtype=torch.float64), 0

    def step(self, rows):
        """One step of the chapter; the seconds of its parts: data, compute, update."""
        start = time.perf_counter()
        X, y = gather(self.train, rows)
        gathered = time.perf_counter()
        loss_sum = loss(lenet(X, self.params), y).sum()
        loss_sum.backward()
        computed = time.perf_counter()
        sgd(self.params, self.args.lr, X.shape[0])
        updated = time.perf_counter()
        self.loss_sum += loss_sum.detach()
        self.rows += X.shape[0]
        return gathered - start, computed - gathered, updated - computed

    def take_loss(self):
        """(mean loss, rows) since the last call."""
        taken = self.loss_sum.item() / self.rows, self.rows
        self.loss_sum.zero_()
        self.rows = 0
        return taken

    @torch.no_grad()
    def test_accuracy(self):
        correct = 0
        for rows in torch.arange(len(self.test[1])).split(256):
            X, y = gather(self.test, rows)
            correct += (lenet(X, self.params).argmax(1) == y).sum()
        return correct.item() / len(self.test[1])

    def weights_sha256(self):
        digest = hashlib.sha256()
        for _, param in sorted(zip(NAMES, self.params)):
            digest.update(ctypes.string_at(param.data_ptr(), param.nbytes))
        return digest.hexdigest()


def train_epoch(run, epoch, record):
    """(mean loss, seconds) of one epoch."""
    args = run.args
    # Outside the clock: nobody who wants speed draws a permutation in a Python loop.
    batches = batch_order(args.seed, epoch, len(run.train[1])).split(args.batch_size)
    loss_sum, logged = 0.0, 0
    start = window_start = time.perf_counter()
    for step, rows in enumerate(batches, 1):
        run.step(rows)
        if step % args.log_every and step < len(batches):
            continue
        mean, trained = run.take_loss()
        seconds = time.perf_counter() - window_start
        step_ms = 1e3 * seconds / (step - logged)
        print(f"epoch {epoch + 1}/{args.epochs} | step {step}/{len(batches)} | loss {mean:.4f} | lr {args.lr:.1e} | "
              f"{step_ms:.1f} ms | {trained / seconds:.0f} img/s", flush=True)
        record(event="step", epoch=epoch + 1, step=step, loss=mean, lr=args.lr, step_ms=step_ms,
               images_per_second=trained / seconds)
        loss_sum += mean * trained
        window_start, logged = time.perf_counter(), step
    return loss_sum / len(run.train[1]), time.perf_counter() - start


def train(args):
    run = Training(args)
    if args.metrics and os.path.exists(args.metrics):
        sys.exit(f"error: {args.metrics} exists already")
    metrics = open(args.metrics, "w") if args.metrics else None

    def record(**event):
        if metrics:
            print(json.dumps(event), file=metrics, flush=True)

    seconds = []
    for epoch in range(args.epochs):
        train_loss, epoch_seconds = train_epoch(run, epoch, record)
        seconds.append(epoch_seconds)
        accuracy = run.test_accuracy()
        print(f"epoch {epoch + 1}/{args.epochs} | train loss {train_loss:.4f} | test acc {accuracy:.3f} | "
              f"{epoch_seconds:.1f} s", flush=True)
        record(event="epoch", epoch=epoch + 1, train_loss=train_loss, test_accuracy=accuracy,
               train_seconds=epoch_seconds)
    mean_seconds = sum(seconds) / len(seconds)
    record(event="done", test_accuracy=accuracy, seconds_per_epoch=mean_seconds, weights_sha256=run.weights_sha256())
    if args.print_weights_hash:
        print(f"weights sha256: {run.weights_sha256()}")
    print(f"test acc: {accuracy:.2f}, {mean_seconds:.1f} sec/epoch on [cpu]")


def turns(args):
    """The protocol of compare_turns.py: `ready` once warm, then for each line `run N` one line of JSON."""
    run = Training(args)
    # Whole batches only, so that every turn is the same work.
    batches = [b for b in batch_order(args.seed, 0, len(run.train[1])).split(args.batch_size)
               if len(b) == args.batch_size]
    done = 0

    def steps(count):
        nonlocal done
        start = time.perf_counter()
        phases = [0.0, 0.0, 0.0]
        for _ in range(count):
            taken = run.step(batches[done % len(batches)])
            phases = [p + t for p, t in zip(phases, taken)]
            done += 1
        mean, _ = run.take_loss()  # inside the clock, as for a step line
        seconds = time.perf_counter() - start
        return dict(seconds=seconds, data=phases[0], compute=phases[1], sync=0.0, update=phases[2], loss=mean)

    steps(args.warmup)
    print("ready", json.dumps(dict(torch=torch.__version__, python=platform.python_version())), flush=True)
    for line in sys.stdin:
        print(json.dumps(steps(int(line.removeprefix("run ")))), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_DATA", DEBIAN_FASHION_MNIST), metavar="DIR")
    parser.add_argument("--limit-train", type=int, metavar="N", help="train on the first N rows only")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--log-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--metrics", metavar="FILE", help="the same numbers as JSON lines")
    parser.add_argument("--print-weights-hash", action="store_true", help="SHA-256 of all weights in order of name")
    parser.add_argument("--turns", action="store_true", help="serve compare_turns.py instead of training")
    parser.add_argument("--warmup", type=int, default=5, metavar="STEPS", help="steps before the first turn")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    turns(args) if args.turns else train(args)


if __name__ == "__main__":
    main()
