#!/usr/bin/env python3
"""scripts/compare/checkpoint_cost.py --lockstep PROGRAM [--repeat N]: what a checkpoint of ResNet-18 with momentum costs,
beside torch.save of the same tensors with fsync, in Python.

The programs take turns: in each repetition lockstep trains and writes checkpoints, then Python saves as often. Needs a
Python with torch. For lockstep three times count: what training waited for, what the writer's thread of low priority
took beside training, and what it took for the last checkpoint, when training was done. Python trains nothing while it
saves; its training would wait for all of that time.
"""
import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time

import torch
from common import range_text
from twin.resnet18 import resnet18

SAVES = 4  # per repetition
STEPS_BETWEEN = 3  # so that the writer has done before the next checkpoint
COST = re.compile(r"checkpoint of step \d+: ([\d.]+) MB; training waited ([\d.]+) ms, writing took ([\d.]+) ms")


def lockstep_costs(program, folder):
    """Returns (MB, ms waited, ms written) of each checkpoint; the last is written when training is done."""
    run = os.path.join(folder, "run")
    subprocess.run([program, "train", "--recipe", "resnet18-warmup", "--devices", "cpu", "--batch-size", "128",
                    "--limit-steps", str(STEPS_BETWEEN * SAVES + 1), "--limit-test", "1", "--quiet", "--keep", "1",
                    "--checkpoint-every", str(STEPS_BETWEEN), "--output", run], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(run, "train.log")) as log:
        costs = [tuple(map(float, found.groups())) for found in COST.finditer(log.read())]
    return costs


def tensors():
    """Model and momentum after a step, as torch's own training has them."""
    net = resnet18()
    optimizer = torch.optim.SGD(net.parameters(), lr=.1, momentum=.9)
    net(torch.rand(2, 1, 28, 28)).sum().backward()
    optimizer.step()
    return {"model": net.state_dict(), "optimizer": optimizer.state_dict()}


def torch_save_ms(state, folder):
    path = os.path.join(folder, "saved.pt")
    begin = time.perf_counter()
    with open(path + ".new", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)
    return 1e3 * (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--repeat", type=int, default=5, help="repetitions; default: 5")
    args = parser.parse_args()
    state = tensors()
    waited, beside, alone, python, ratios = [], [], [], [], []
    for _ in range(args.repeat):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            costs = lockstep_costs(args.lockstep, folder)
            saved = [torch_save_ms(state, folder) for _ in range(SAVES)]
        waited += [cost[1] for cost in costs]
        beside += [cost[2] for cost in costs[:-1]]
        alone.append(costs[-1][2])
        python += saved
        ratios.append(alone[-1] / statistics.median(saved))
    print(f"checkpoint {costs[0][0]:.1f} MB, {args.repeat} repetitions of {SAVES}; ms, median (min - max)")
    for name, ms in (("training waited", waited), ("writer beside training", beside), ("writer alone", alone),
                     ("torch.save, fsync", python)):
        print(f"  {name:22} {range_text(ms, '.1f')}")
    print(f"writer alone / torch.save: {statistics.median(ratios):.2f}; one checkpoint a minute costs training "
          f"{statistics.median(waited) / 600:.3f} %")


if __name__ == "__main__":
    main()
