#!/usr/bin/env python3
"""lockstep and Python torch in turn on one machine. compare_pytorch.sh builds what this needs and calls it.

Runs in the Python that has torch, which then also runs the baseline. A case is a model and a precision.

Turns: every contender of a case stays alive, warmed up and idle but for its turn. In a turn each takes the same number
of steps, one after the other, in an order that is reversed from turn to turn; ratios are taken within a turn, and their
median counts. So what slows the machine down for a while slows both sides of a ratio.
    lockstep         one replica on all cores; two 1-thread replicas, each on a core; one 1-thread replica; all by the
                     kernels that `lockstep train` takes by itself (--kernels auto)
    lockstep direct  of LeNet in fp32: two 1-thread replicas, our kernels without Winograd's tiles (--kernels direct)
    lockstep stock   one replica on all cores, torch's kernels (--kernels torch)
    Python eager     on all cores
    Python DDP       two 1-thread processes over Gloo, each on a core
    torch.compile    the eager step's model and loss, on all cores, in the mode that is faster here

Runs: `lockstep train` and scripts/baseline_pytorch.py train LeNet in fp32 from the same weights in the same order of
rows.

At the end all cases stand in one table of Markdown, in the form of docs/results.md.

Exit codes: 0 all is well, 1 a goal is missed or the contenders computed different things, 2 usage, 7 output file.
"""
import argparse
import contextlib
import dataclasses
import json
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import compare_goals as goals
import compare_page as page
from compare_contenders import CORES, HERE, make_contenders, make_witnesses, take_turns
from compare_program import add_data_flag, add_json_flags, environment, positive, print_environment
from new_file import check_output, write_whole

MODELS = {
    "lenet": dict(title="LeNet", turns=11, steps=20, warmup=5, lr=0.2),
    "resnet18": dict(title="ResNet-18", turns=7, steps=2, warmup=2, lr=0.1),
}
PRECISIONS = ["fp32", "bf16"]


@dataclasses.dataclass
class Case:
    model: str
    precision: str
    turns: int
    steps: int  # of a turn
    warmup: int  # steps before the first turn
    lr: float
    rivals: dict = dataclasses.field(default_factory=dict)  # contenders by role
    witnesses: dict = dataclasses.field(default_factory=dict)  # likewise, of one turn each
    runs: list = dataclasses.field(default_factory=list)

    @property
    def name(self):
        return f"{self.model} {self.precision}"

    @property
    def title(self):
        return f"{MODELS[self.model]['title']}, {self.precision}"

    @property
    def whole_runs(self):
        return self.name == "lenet fp32"

    @property
    def has_direct(self):
        """Where `direct` is kernels of its own throughout: ResNet-18's convolutions are then torch's, and LeNet's
        kernels in bf16 are those in fp32."""
        return self.name == "lenet fp32"


def make_cases(args):
    def value(name, model):
        given = getattr(args, name)
        return MODELS[model][name] if given is None else given

    return [Case(model, precision, **{name: value(name, model) for name in ("turns", "steps", "warmup", "lr")})
            for model in ([args.model] if args.model else MODELS)
            for precision in ([args.precision] if args.precision else PRECISIONS)]


# ---- one case


def hear_witnesses(case, stack, args):
    """They are gone before the others start, which want the memory."""
    for role, contender in make_witnesses(args, case).items():
        stack.callback(contender.kill)
        contender.start()
        contender.run(case.steps)
        contender.kill()
        case.witnesses[role] = contender


def start(case, stack, args):
    """The case's contenders, warm; those that this machine cannot run are named and left out."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    for role, contender in make_contenders(args, case, folder).items():
        stack.callback(contender.kill)
        contender.start()
        if contender.skipped:
            print(f"# {contender.name} is left out: {contender.skipped}")
        else:
            case.rivals[role] = contender


def print_memory(case):
    held = sum(contender.resident_bytes() for contender in case.rivals.values())
    print(f"# memory: {held / 1e9:.1f} GB are held by the warm contenders, {available_bytes() / 1e9:.1f} GB are free",
          flush=True)


def take_case(args, case):
    """Prints all about it; the rows of what was judged."""
    print(f"#\n# {case.title}, batch {args.batch_size}, lr {case.lr}, "
          f"seed {args.seed}, {case.warmup} warm-up step{'s' if case.warmup > 1 else ''}", flush=True)
    with contextlib.ExitStack() as stack:
        hear_witnesses(case, stack, args)
        start(case, stack, args)
        print_memory(case)
        take_turns(case.rivals, case.turns, case.steps)
    # They are gone before the whole runs, which want the cores and the memory.
    goals.print_table(args, case, case.rivals)
    ratios = goals.judge(args, case, case.rivals)
    losses = goals.loss_checks(args, case, case.rivals | case.witnesses)
    idle = goals.idle_check(case, case.rivals)
    goals.print_goals(ratios)
    goals.print_checks(losses, idle)
    goals.print_compile(case.rivals)
    if case.whole_runs:
        case.runs = train_both(args, case)
        print_runs(args, case.runs)
    return dict(goals=ratios, loss_checks=losses, idle_check=idle)


# ---- whole runs


def run_training(name, command, folder):
    """Trains to the end; the last epoch's line of its --metrics file, and the closing one's seconds."""
    metrics = folder / "metrics.jsonl"
    done = subprocess.run([*command, "--metrics", str(metrics)], stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"error: {name} ended with code {done.returncode}\n  {shlex.join(command)}")
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    metrics.unlink()
    last = [event for event in events if event["event"] == "epoch"][-1]
    return dict(name=name, train_loss=last["train_loss"], test_accuracy=last["test_accuracy"],
                seconds_per_epoch=events[-1]["seconds_per_epoch"])


def train_both(args, case):
    flags = ["--epochs", str(args.epochs), "--batch-size", str(args.batch_size), "--lr", str(case.lr),
             "--seed", str(args.seed), "--data", args.data, "--threads", str(CORES)]
    if args.limit_train:
        flags += ["--limit-train", str(args.limit_train)]
    with tempfile.TemporaryDirectory() as folder:
        ours = run_training("lockstep cpu", [args.lockstep, "train", "--devices", "cpu", *flags], Path(folder))
        python = run_training("Python eager", [sys.executable, str(HERE / "baseline_pytorch.py"), *flags], Path(folder))
    return [ours, python]


def print_runs(args, runs):
    print(f"#\n# {args.epochs} epoch{'s' if args.epochs > 1 else ''} of {args.limit_train or 'all'} rows "
          "from the same weights in the same order")
    print(f"{'run':<16} {'sec/epoch':>9} {'train loss':>11} {'test acc':>9}")
    for run in runs:
        print(f"{run['name']:<16} {run['seconds_per_epoch']:>9.2f} {run['train_loss']:>11.6f} "
              f"{run['test_accuracy']:>9.4f}")
    ours, python = runs
    print(f"{'ratio':<16} {ours['seconds_per_epoch'] / python['seconds_per_epoch']:>9.3f}")


# ---- the whole


def available_bytes():
    lines = dict(line.split(":") for line in open("/proc/meminfo"))
    return 1024 * int(lines["MemAvailable"].split()[0])


def roles(text):
    given = text.split(",") if text else []
    unknown = set(given) - set(goals.PYTHONS)
    if unknown:
        raise argparse.ArgumentTypeError(f"knows {', '.join(goals.PYTHONS)}; got {', '.join(sorted(unknown))}")
    return [role for role in goals.PYTHONS if role in given]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True, metavar="PROGRAM")
    parser.add_argument("--contender", required=True, metavar="PROGRAM", help="built from scripts/contender.cpp")
    parser.add_argument("--model", choices=MODELS, help="default: one after the other")
    parser.add_argument("--precision", choices=PRECISIONS, help="default: one after the other")
    parser.add_argument("--against", type=roles, default=goals.PYTHONS, metavar="LIST",
                        help="of eager,ddp,compile; default: all three")
    parser.add_argument("--compile-mode", choices=["default", "max-autotune", "fastest"], default="fastest",
                        help="torch.compile's; fastest: both are tried when the contender starts")
    parser.add_argument("--memory-format", choices=["contiguous", "channels_last"], default="channels_last",
                        help="of Python's images and convolutions; default: channels_last, the faster on processors; "
                        "contiguous is as the chapters write it")
    add_data_flag(parser)
    parser.add_argument("--turns", type=positive, help=f"default: 11 of LeNet, 7 of ResNet-18; under {goals.MIN_TURNS} "
                        "the goals are not judged")
    parser.add_argument("--steps", type=positive, help="of a turn; default: 20 of LeNet, 2 of ResNet-18")
    parser.add_argument("--warmup", type=positive, metavar="STEPS", help="default: 5 of LeNet, 2 of ResNet-18")
    parser.add_argument("--epochs", type=positive, default=1, help="of the whole runs")
    parser.add_argument("--limit-train", type=positive, metavar="N", help="rows of the whole runs; default: all")
    parser.add_argument("--batch-size", type=positive, default=256, help="global")
    parser.add_argument("--lr", type=float, help="default: .2 for LeNet, .1 for ResNet-18")
    parser.add_argument("--seed", type=int, default=0)
    add_json_flags(parser)
    parser.add_argument("--markdown", metavar="FILE", help="the table at the end, which is printed too")
    return parser.parse_args()


def write_json(args, env, cases, judged):
    def describe(case, found):
        contenders = dict(contenders=case.rivals, witnesses=case.witnesses)
        values = {field.name: getattr(case, field.name) for field in dataclasses.fields(case)}
        values |= {name: [each.as_json() for each in by_role.values()] for name, by_role in contenders.items()}
        del values["rivals"]
        return dict(**values, **found)

    result = dict(environment=env, cases=[describe(case, found) for case, found in zip(cases, judged)])
    write_whole(args.json, json.dumps(result, indent=1) + "\n")


def main():
    args = parse()
    check_output("--json", args.json, args.overwrite)
    check_output("--markdown", args.markdown, args.overwrite)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # through all that cleans up
    env = environment(args.lockstep) | dict(batch_size=args.batch_size, seed=args.seed)
    print_environment(env)
    if CORES != 2:
        print("# the goals are for two cores: taskset -c 0,1 gives two")
    cases = make_cases(args)
    judged = [take_case(args, case) for case in cases]
    text = "\n".join(page.lines(args, env, cases))
    print(f"#\n{text}")
    if args.markdown:
        write_whole(args.markdown, text + "\n")
    if args.json:
        write_json(args, env, cases, judged)
    rows = [row for found in judged for row in (*found["goals"], *found["loss_checks"], found["idle_check"])]
    sys.exit(1 if any(row["met"] is False for row in rows) else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
