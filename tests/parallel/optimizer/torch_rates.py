"""Prints torch_rates.inc: the learning rates of torch.optim.lr_scheduler over 300 steps.

torch_rates.py > torch_rates.inc    (made with torch 2.15.0)
"""
import math

import torch
from torch.optim import lr_scheduler

STEPS, EPOCH = 300, 10


def test_loss(epoch):
    """Falls, then stays and wavers: a plateau's rate falls several times."""
    return 2 * math.exp(-epoch / 3) + .5 + .01 * math.cos(7 * epoch)


def rates(make_scheduler, every=1, loss=False):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=.1)
    scheduler = make_scheduler(optimizer)
    found = []
    for step in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (step + 1) % every == 0:
            scheduler.step(test_loss(step // EPOCH)) if loss else scheduler.step()
    return found


def warm_cosine(optimizer):
    return lr_scheduler.SequentialLR(optimizer, [
        lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 40)),
        lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS - 40)], milestones=[40])


def one_cycle(**options):
    return lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=.1, total_steps=STEPS, cycle_momentum=False,
                                                     **options)


COLUMNS = [
    rates(lambda optimizer: lr_scheduler.ConstantLR(optimizer, factor=1)),
    rates(lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)),
    rates(warm_cosine),
    rates(lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [STEPS // 2, STEPS * 3 // 4], gamma=.1)),
    rates(one_cycle()),
    rates(one_cycle(pct_start=.25, anneal_strategy="linear", div_factor=10, final_div_factor=100)),
    rates(lambda optimizer: lr_scheduler.ExponentialLR(optimizer, gamma=.97), every=EPOCH),
    rates(lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, factor=.5, patience=2, threshold=.01),
          every=EPOCH, loss=True),
]

if __name__ == "__main__":
    for step, row in enumerate(zip(*COLUMNS)):
        loss = test_loss(step // EPOCH) if (step + 1) % EPOCH == 0 else 0
        print("{" + ", ".join(f"{value:.13g}" for value in [*row, loss]) + "},")
