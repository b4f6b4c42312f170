#!/usr/bin/env python3
"""Trains the chapters' networks in eager Python torch, for comparison with `lockstep train` on one device.

The scratch LeNet is trained with the chapter's own lines, ResNet-18 with torch.optim.SGD. Initial weights, the order of
rows and the learning rate of each step are those of `lockstep train`, so that both do the same arithmetic on the same
numbers. Like lockstep it keeps the whole data set on the device as uint8 and reads the loss only where it is printed:
the comparison is about training, not about loading data.

    baseline_pytorch.py --epochs 10              train LeNet; prints what `lockstep train` prints
    baseline_pytorch.py --model resnet18 --epochs 3 --batch-size 64 --lr .05 --momentum .9 --weight-decay 5e-4 \\
        --schedule cosine --warmup-epochs 1 --limit-train 6400
                                                 the twin of `lockstep train --recipe resnet18-warmup --epochs 3
                                                 --batch-size 64 --lr .05 --limit-train 6400`
    baseline_pytorch.py --model program_gpt --export FILE.pt2          writes the network as a program for lockstep
    baseline_pytorch.py --serve                  a case of compare_pytorch.py or compare_gpu.py

Needs torch alone (no numpy).
"""
import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated")  # torch 2.11 has no other name
import torch  # noqa: E402

from twin.data import DEBIAN_FASHION_MNIST  # noqa: E402
from twin.process import keep_to_core  # noqa: E402
from twin.training import MEMORY_FORMATS, PRECISIONS, Training, lr_at, set_arithmetic  # noqa: E402
from twin.serve import COMPILE_MODES, serve  # noqa: E402
from twin.lenet import NAMES, init_params, lenet, loss, sgd  # noqa: E402, F401  (for tests/reference)
from twin.own_models import PROGRAMS  # noqa: E402
from twin.resnet18 import INITIALIZATIONS  # noqa: E402

DEFAULT_LR = dict(lenet=0.2, resnet18=0.1, mlp=0.1, wide_mlp=0.0001, cnn=0.05, gpt=0.001, program_resnet18=0.1, program_gpt=0.001,
                  program_mobilenet=0.05)
EXPORT_ROWS = 4


def train_epoch(run, epoch, record):
    """(mean loss, seconds) of one epoch."""
    args = run.args
    # Not timed: a permutation drawn in a Python loop is slow, and no part of training.
    batches = run.batches(epoch)
    loss_sum, logged = 0.0, 0
    start = window_start = time.perf_counter()
    for step, rows in enumerate(batches, 1):
        lr = lr_at(args, epoch * len(batches) + step - 1, len(batches))
        run.step(rows, lr)
        if step % args.log_every and step < len(batches):
            continue
        mean, trained = run.take_loss()
        seconds = time.perf_counter() - window_start
        step_ms = 1e3 * seconds / (step - logged)
        print(f"epoch {epoch + 1}/{args.epochs} | step {step}/{len(batches)} | loss {mean:.4f} | lr {lr:.1e} | "
              f"{step_ms:.1f} ms | {trained / seconds:.0f} img/s", flush=True)
        record(event="step", epoch=epoch + 1, step=step, loss=mean, lr=lr, step_ms=step_ms,
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
    record(event="end", status="done", test_accuracy=accuracy, seconds_per_epoch=mean_seconds,
           weights_sha256=run.weights_sha256())
    if args.print_weights_hash:
        print(f"weights sha256: {run.weights_sha256()}")
    print(f"test acc: {accuracy:.2f}, {mean_seconds:.1f} sec/epoch on [{args.device}]")


def export(args):
    """Writes the network with its initial weights as a program."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from export_program import export_program
    run = Training(args)
    X, _ = run.gather(run.train, torch.arange(EXPORT_ROWS))
    export_program(run.twin.net, (X,), args.export)


def add_training_flags(parser):
    parser.add_argument("--model", choices=DEFAULT_LR, default="lenet")
    parser.add_argument("--export", metavar="FILE.pt2", help="write the network instead, of " + ", ".join(PROGRAMS))
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:0 and so on")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="tf32: on GPUs, in matrix products and "
                        "convolutions; bf16: under autocast")
    parser.add_argument("--cudnn-benchmark", action="store_true", help="cuDNN times its algorithms and uses the fastest")
    parser.add_argument("--memory-format", choices=MEMORY_FORMATS, default="channels_last",
                        help="default: channels_last, which is faster on CPUs; contiguous: as in the chapters")
    parser.add_argument("--initialization", choices=INITIALIZATIONS, default="torch", help="of resnet18's weights")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=256, help="global")
    parser.add_argument("--lr", type=float,
                        help="default: " + ", ".join(f"{lr:g} for {name}" for name, lr in DEFAULT_LR.items()))
    parser.add_argument("--momentum", type=float, default=0.0, help="of resnet18's SGD")
    parser.add_argument("--weight-decay", type=float, default=0.0, help="of resnet18's SGD")
    parser.add_argument("--schedule", choices=["constant", "cosine"], default="constant")
    parser.add_argument("--warmup-epochs", type=int, default=0, help="epochs in which the learning rate rises to its value")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_DATA", DEBIAN_FASHION_MNIST), metavar="DIR")
    parser.add_argument("--limit-train", type=int, metavar="N", help="train on the first N rows only")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--log-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--metrics", metavar="FILE", help="the same numbers as JSON lines")
    parser.add_argument("--print-weights-hash", action="store_true", help="SHA-256 of all weights in order of name")


def add_serve_flags(parser):
    serve = parser.add_argument_group("serve")
    serve.add_argument("--serve", action="store_true", help="warm up, then take steps as stdin asks, instead of training")
    serve.add_argument("--last-batch", choices=["drop", "keep"], default="drop", help="the smaller last batch of an epoch")
    serve.add_argument("--warmup", type=int, default=5, metavar="STEPS", help="steps before the first repetition")
    serve.add_argument("--compile", choices=[*COMPILE_MODES, "fastest"],
                       help="use torch.compile in this mode; fastest: try both and keep the faster one")
    serve.add_argument("--store", metavar="FILE", help="use DistributedDataParallel; its processes find each other "
                       "through this file, which must not exist yet")
    serve.add_argument("--shard", action="store_true", help="with ZeroRedundancyOptimizer, of wide_mlp")
    serve.add_argument("--world", type=int, default=1, help="number of processes; each of several keeps to one core")
    serve.add_argument("--rank", type=int, default=0, help="number of this process, from 0")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_training_flags(parser)
    add_serve_flags(parser)
    args = parser.parse_args()
    if args.model != "resnet18" and (args.momentum or args.weight_decay):
        parser.error("--momentum and --weight-decay need --model resnet18: the others have settings of their own")
    if args.model.endswith("gpt") and not args.serve and not args.export:
        parser.error(f"--model {args.model} needs --serve: it has no accuracy")
    if args.export and args.model not in PROGRAMS:
        parser.error(f"--export needs a --model of {', '.join(PROGRAMS)}, got {args.model}")
    if args.warmup_epochs and args.warmup_epochs >= args.epochs:
        parser.error(f"--warmup-epochs {args.warmup_epochs} must be less than --epochs {args.epochs}")
    if not args.serve and (args.store or args.compile):
        parser.error("--store and --compile need --serve")
    if args.world > 1 and (args.store is None or args.batch_size % args.world):
        parser.error(f"--world {args.world} needs --store, and must divide --batch-size {args.batch_size}")
    args.lr = DEFAULT_LR[args.model] if args.lr is None else args.lr
    return args


def main():
    args = parse()
    if args.world > 1:
        keep_to_core(args.rank)  # before torch starts threads, which inherit the core
    torch.set_num_threads(args.threads)
    set_arithmetic(args)
    export(args) if args.export else serve(args) if args.serve else train(args)


if __name__ == "__main__":
    main()
