"""What the turns of compare_gpu.py say: a table's rows, ratios paired within a turn, goals met or missed. Numbers only.

A result is what compare_gpu.py writes: dict(model, epochs (of a turn), rows_per_epoch, peak_tflops, contenders), each
contender a dict(role, name, first_loss, turns, host_seconds, busy, memory_mb, clock_mhz), each turn a dict(seconds,
loss). first_loss is that of the first epoch, before the turns. What the machine could not tell is None.
"""
import math
import statistics

# Training: three times the multiply-adds of the forward pass, two operations each.
FLOPS_PER_IMAGE = dict(lenet=13.3e6, resnet18=2.735e9)

# The first epoch's mean losses, relative. LeNet spends it on a plateau, where bf16 (TF32 is finer) makes 5e-7 of the loss
# and another order of sums 5e-8, but 1 % more learning rate 3e-6 and other weights 1e-4. ResNet-18's loss falls from the
# first step on, and rounding grows into a training of its own: epochs of the same training differ by percents, one that
# learns nothing by far more.
LOSS_LIMITS = dict(lenet=1e-6, resnet18=0.15)


def seconds_per_epoch(result, contender):
    return statistics.median(turn["seconds"] for turn in contender["turns"]) / result["epochs"]


def paired(above, below):
    """Median of the ratio of the seconds, turn by turn."""
    return statistics.median(a["seconds"] / b["seconds"] for a, b in zip(above["turns"], below["turns"]))


def by_role(result):
    return {contender["role"]: contender for contender in result["contenders"]}


def row(result, contender):
    """A contender's row of the table."""
    seconds = seconds_per_epoch(result, contender)
    images = result["rows_per_epoch"] / seconds
    host = contender["host_seconds"]
    return dict(name=contender["name"], seconds_per_epoch=seconds,
                fastest=min(turn["seconds"] for turn in contender["turns"]) / result["epochs"],
                images_per_second=images,
                mfu=images * FLOPS_PER_IMAGE[result["model"]] / (1e12 * result["peak_tflops"]),
                host_us=None if host is None else 1e6 * host, busy=contender["busy"],
                memory_mb=contender["memory_mb"], clock_mhz=contender["clock_mhz"],
                loss=contender["turns"][-1]["loss"], times_ours=paired(contender, result["contenders"][0]))


def goal(name, what, value, relation, limit):
    """met: None where the value is not known."""
    met = None if value is None else value <= limit if relation == "<=" else value >= limit
    return dict(goal=name, what=what, value=value, relation=relation, limit=limit, met=met)


def ratio(roles, above, below):
    return paired(roles[above], roles[below]) if above in roles and below in roles else None


def judge(result):
    """The goals of this network that its turns can tell of."""
    roles = by_role(result)
    rows = {role: row(result, contender) for role, contender in roles.items()}

    def of(role, key):
        return rows[role][key] if role in rows else None

    if result["model"] == "lenet":
        goals = [goal("P5", "LeNet fp32, s/epoch", of("ours", "seconds_per_epoch"), "<=", 0.012)]
    else:
        goals = [goal("P1", "ResNet-18 bf16, s/epoch", of("ours", "seconds_per_epoch"), "<=", 0.45),
                 goal("P2", "seconds of torch.compile / ours", ratio(roles, "compile", "ours"), ">=", 1.3),
                 goal("P2", "seconds of the fast eager / ours", ratio(roles, "fast", "ours"), ">=", 2),
                 goal("P3", "ResNet-18 bf16, share of the measured bf16 peak", of("ours", "mfu"), ">=", 0.46),
                 goal("P4", "ResNet-18 TF32, s/epoch", of("tf32", "seconds_per_epoch"), "<=", 0.95)]
    title = "LeNet fp32" if result["model"] == "lenet" else "ResNet-18 bf16"
    return goals + [goal("P7", f"{title}, host us a step", of("ours", "host_us"), "<=", 15),
                    goal("P7", f"{title}, GPU busy %", of("ours", "busy"), ">=", 97)]


def loss_check(result):
    """Largest relative difference of the first epoch's mean losses among all contenders."""
    losses = [contender["first_loss"] for contender in result["contenders"]]
    difference = max(losses) / min(losses) - 1 if all(map(math.isfinite, losses)) else math.inf
    limit = LOSS_LIMITS[result["model"]]
    return dict(what="relative difference of the first epoch's mean losses", difference=difference, limit=limit,
                met=difference <= limit)


COLUMNS = [("contender", "name", ""), ("s/epoch", "seconds_per_epoch", ".4f"), ("fastest", "fastest", ".4f"),
           ("images/s", "images_per_second", ",.0f"), ("MFU", "mfu", ".1%"), ("host us/step", "host_us", ".1f"),
           ("GPU busy %", "busy", ".0f"), ("GPU MB", "memory_mb", ",.0f"), ("SM MHz", "clock_mhz", ".0f"),
           ("loss", "loss", ".5f"), ("/ ours", "times_ours", ".2f")]


def cell(value, form):
    return "-" if value is None else format(value, form)


def markdown(head, lines):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for line in lines:
        yield "| " + " | ".join(line) + " |"


def table(result):
    """Lines of Markdown."""
    rows = (row(result, contender) for contender in result["contenders"])
    return markdown([title for title, _, _ in COLUMNS],
                    [[cell(values[key], form) for _, key, form in COLUMNS] for values in rows])


def verdict(met):
    return {True: "met", False: "missed", None: "not known"}[met]


def goal_table(goals):
    return markdown(["", "goal", "value", "limit", ""],
                    [[g["goal"], g["what"], cell(g["value"], ".4g"), f"{g['relation']} {g['limit']:g}",
                      verdict(g["met"])] for g in goals])
