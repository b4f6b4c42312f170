"""Evaluates the repetitions of compare_gpu.py: table rows, ratios paired within a repetition, goals.

A result is the JSON of compare_gpu.py: dict(model, epochs (per repetition), rows_per_epoch, peak_tflops, cases). A case is
a dict(role, name, precision, first_loss, repetitions, host_seconds, busy, memory_mb, clock_mhz), a repetition a dict(seconds, loss).
first_loss is the loss of the first epoch, before the repetitions. Figures that the machine could not give are None.
"""
import collections
import math
import statistics

from common import cell, markdown

# Training: three times the multiply-adds of the forward pass, two operations each.
FLOPS_PER_IMAGE = dict(lenet=13.3e6, resnet18=2.735e9)

# Limits of the relative difference of the first epoch's mean losses in one precision. LeNet spends that epoch on a plateau:
# two correct runs in fp32 were seen to differ by 1.1e-6; 2 % more learning rate changes its loss by 6e-6, and other weights
# by 1e-4. ResNet-18's loss falls from the first step on and rounding grows: epochs of the same training differ by percents,
# an epoch that learns nothing by far more.
LOSS_LIMITS = dict(lenet=3e-6, resnet18=0.15)


def seconds_per_epoch(result, case):
    return statistics.median(repetition["seconds"] for repetition in case["repetitions"]) / result["epochs"]


def paired(above, below):
    """Returns the median ratio of the seconds of a repetition."""
    return statistics.median(a["seconds"] / b["seconds"] for a, b in zip(above["repetitions"], below["repetitions"]))


def by_role(result):
    return {case["role"]: case for case in result["cases"]}


def row(result, case):
    """Returns the row of a case in the table."""
    seconds = seconds_per_epoch(result, case)
    images = result["rows_per_epoch"] / seconds
    host = case["host_seconds"]
    return dict(name=case["name"], seconds_per_epoch=seconds,
                fastest=min(repetition["seconds"] for repetition in case["repetitions"]) / result["epochs"],
                images_per_second=images,
                mfu=images * FLOPS_PER_IMAGE[result["model"]] / (1e12 * result["peak_tflops"]),
                host_us=None if host is None else 1e6 * host, busy=case["busy"],
                memory_mb=case["memory_mb"], clock_mhz=case["clock_mhz"],
                loss=case["repetitions"][-1]["loss"], times_lockstep=paired(case, result["cases"][0]))


def goal(name, what, value, relation, limit):
    """Returns a goal; met is None where the value is unknown."""
    met = None if value is None else value <= limit if relation == "<=" else value >= limit
    return dict(goal=name, what=what, value=value, relation=relation, limit=limit, met=met)


def ratio(roles, above, below):
    return paired(roles[above], roles[below]) if above in roles and below in roles else None


def judge(result):
    """Returns the goals of this network that its repetitions can judge."""
    roles = by_role(result)
    rows = {role: row(result, case) for role, case in roles.items()}

    def of(role, key):
        return rows[role][key] if role in rows else None

    if result["model"] == "lenet":
        goals = [goal("P5", "LeNet fp32, s/epoch", of("lockstep", "seconds_per_epoch"), "<=", 0.012)]
    else:
        goals = [goal("P1", "ResNet-18 bf16, s/epoch", of("lockstep", "seconds_per_epoch"), "<=", 0.45),
                 goal("P2", "seconds of torch.compile / lockstep", ratio(roles, "compile", "lockstep"), ">=", 1.3),
                 goal("P2", "seconds of the fast eager / lockstep", ratio(roles, "fast", "lockstep"), ">=", 2),
                 goal("P3", "ResNet-18 bf16, share of the measured bf16 peak", of("lockstep", "mfu"), ">=", 0.46),
                 goal("P4", "ResNet-18 TF32, s/epoch", of("tf32", "seconds_per_epoch"), "<=", 0.95)]
    title = "LeNet fp32" if result["model"] == "lenet" else "ResNet-18 bf16"
    return goals + [goal("P7", f"{title}, host us per step", of("lockstep", "host_us"), "<=", 15),
                    goal("P7", f"{title}, GPU busy %", of("lockstep", "busy"), ">=", 97)]


def loss_check(result):
    """Checks the largest relative difference of the first epoch's mean losses among cases of the same precision."""
    losses = collections.defaultdict(list)
    for case in result["cases"]:
        losses[case["precision"]].append(case["first_loss"])
    difference = max(max(found) / min(found) - 1 if all(map(math.isfinite, found)) else math.inf
                     for found in losses.values())
    limit = LOSS_LIMITS[result["model"]]
    return dict(what="relative difference of the first epoch's mean losses in one precision", difference=difference,
                limit=limit, met=difference <= limit)


COLUMNS = [("case", "name", ""), ("s/epoch", "seconds_per_epoch", ".4f"), ("fastest", "fastest", ".4f"),
           ("images/s", "images_per_second", ",.0f"), ("MFU", "mfu", ".1%"), ("host us/step", "host_us", ".1f"),
           ("GPU busy %", "busy", ".0f"), ("GPU MB", "memory_mb", ",.0f"), ("SM MHz", "clock_mhz", ".0f"),
           ("loss", "loss", ".5f"), ("/ lockstep", "times_lockstep", ".2f")]


def table(result):
    """Returns the table as lines of Markdown."""
    rows = (row(result, case) for case in result["cases"])
    return markdown([title for title, _, _ in COLUMNS],
                    [[cell(values[key], form) for _, key, form in COLUMNS] for values in rows])


def verdict(met):
    return {True: "met", False: "missed", None: "unknown"}[met]


def goal_table(goals):
    return markdown(["", "goal", "value", "limit", ""],
                    [[g["goal"], g["what"], cell(g["value"], ".4g"), f"{g['relation']} {g['limit']:g}",
                      verdict(g["met"])] for g in goals])
