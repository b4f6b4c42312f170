#!/usr/bin/env python3
"""Compares training steps of lockstep and of Python torch on one machine. compare_pytorch.sh builds and calls this.

Runs in the Python that has torch, which then also runs the baseline. A setting is a model and a precision; a case is a
way to train it:
    lockstep         one replica on all cores; two 1-thread replicas, each on a core; one 1-thread replica; all with the
                     default kernels (--kernels auto)
    2 processes      lockstep: two processes of one 1-thread replica over Gloo, each on a core
    lockstep direct  LeNet in fp32 only: two 1-thread replicas, without Winograd's tiles (--kernels direct)
    lockstep torch   one replica on all cores, torch's kernels (--kernels torch); with --kernels torch, and for networks
                     of one's own (--model mlp,cnn,gpt,program_...), all of lockstep's cases have them, and this one is left out
    Python eager     on all cores
    Python DDP       two 1-thread processes over Gloo, each on a core
    torch.compile    the eager step's model and loss, on all cores, in the mode that is faster here

All cases of a setting stay alive, warm and idle. In a repetition each takes the same number of steps, one case after the
other; every second repetition goes the other way round. Ratios are taken within a repetition, and their median counts:
what slows the machine down for a while slows both sides of a ratio.

Then `lockstep train` and baseline_pytorch.py train LeNet in fp32 for whole epochs, from the same weights in the
same order of rows. At the end one Markdown table shows all settings, in the form of docs/results.md.

Exit codes: 0 all is well, 1 a goal is missed or the cases computed different things, 2 usage, 7 output file.
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
from common import (CORES, add_data_flag, add_output_flags, check_outputs, environment, list_of, positive, print_environment,
                    write_whole)
from compare_cases import HERE, PROGRAMS, Maker, make_cases, make_witnesses, repeat_cases

MODELS = {
    "lenet": dict(title="LeNet", repeat=11, steps=20, warmup=5, lr=0.2),
    "resnet18": dict(title="ResNet-18", repeat=7, steps=2, warmup=2, lr=0.1),
    # Networks of torch's layers. They are measured only where --model names them.
    "mlp": dict(title="MLP", repeat=11, steps=20, warmup=5, lr=0.1),
    # Its optimizer is a large part of a step of few rows: --batch-size 64.
    "wide_mlp": dict(title="MLP of 214 MB", repeat=9, steps=3, warmup=3, lr=0.0001),
    "cnn": dict(title="CNN", repeat=11, steps=5, warmup=3, lr=0.05),
    "gpt": dict(title="character GPT", repeat=11, steps=5, warmup=3, lr=0.001),
    # Networks that are exported.
    "program_resnet18": dict(title="ResNet-18 program", repeat=7, steps=2, warmup=2, lr=0.1),
    "program_gpt": dict(title="character GPT program", repeat=11, steps=5, warmup=3, lr=0.001),
    "program_mobilenet": dict(title="mobilenet_v3_small program", repeat=7, steps=2, warmup=2, lr=0.05),
}
USUAL_MODELS = ["lenet", "resnet18"]
PRECISIONS = ["fp32", "bf16"]


@dataclasses.dataclass
class Setting:
    model: str
    precision: str
    repetitions: int
    steps: int  # per repetition
    warmup: int  # steps before the first repetition
    lr: float
    kernels: str  # of lockstep's cases
    cases: dict = dataclasses.field(default_factory=dict)  # by role
    witnesses: dict = dataclasses.field(default_factory=dict)  # by role; they take one repetition
    runs: list = dataclasses.field(default_factory=list)

    @property
    def name(self):
        return f"{self.model} {self.precision}"

    @property
    def title(self):
        kernels = ", torch's kernels" if self.kernels == "torch" else ""
        return f"{MODELS[self.model]['title']}, {self.precision}{kernels}"

    @property
    def whole_runs(self):
        return self.name == "lenet fp32"

    @property
    def has_direct(self):
        """Returns true if `direct` has kernels of its own: for ResNet-18 it uses torch's convolutions, and for LeNet in
        bf16 the kernels of fp32."""
        return self.name == "lenet fp32" and self.kernels == "auto"


def make_settings(args):
    def value(name, model):
        given = getattr(args, name)
        return MODELS[model][name] if given is None else given

    return [Setting(model, precision, *(value(name, model) for name in ("repeat", "steps", "warmup", "lr")),
                    kernels="torch" if model in (*goals.OWN_MODELS, *PROGRAMS) else args.kernels)
            for model in args.model
            for precision in ([args.precision] if args.precision else PRECISIONS)]


# ---- one setting


def run_witnesses(setting, stack, args):
    """They end before the other cases start and need the memory."""
    for role, case in make_witnesses(args, setting).items():
        stack.callback(case.kill)
        case.start()
        case.run(setting.steps)
        case.kill()
        setting.witnesses[role] = case


def start(setting, stack, args):
    """Starts and warms up the setting's cases. Names and leaves out those that this machine cannot run."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    if setting.model in PROGRAMS:
        subprocess.run(Maker(args, setting, folder).export_command(), check=True)
    for role, case in make_cases(args, setting, folder).items():
        stack.callback(case.kill)
        case.start()
        if case.skipped:
            print(f"# {case.name} is left out: {case.skipped}")
        else:
            setting.cases[role] = case


def print_memory(setting):
    held = sum(case.resident_bytes() for case in setting.cases.values())
    print(f"# memory: {held / 1e9:.1f} GB are used by the warm cases, {available_bytes() / 1e9:.1f} GB are free",
          flush=True)


def measure_setting(args, setting):
    """Measures a setting, prints its tables, and returns the rows that were judged."""
    print(f"#\n# {setting.title}, batch {args.batch_size}, lr {setting.lr}, "
          f"seed {args.seed}, {setting.warmup} warm-up step{'s' if setting.warmup > 1 else ''}", flush=True)
    with contextlib.ExitStack() as stack:
        run_witnesses(setting, stack, args)
        start(setting, stack, args)
        print_memory(setting)
        repeat_cases(setting.cases, setting.repetitions, setting.steps)
    # All cases have ended: the whole runs need the cores and the memory.
    goals.print_table(args, setting, setting.cases)
    ratios = goals.judge(args, setting, setting.cases)
    losses = goals.loss_checks(args, setting, setting.cases | setting.witnesses)
    idle = goals.idle_check(setting, setting.cases)
    goals.print_goals(ratios)
    goals.print_checks(losses, idle)
    goals.print_compile(setting.cases)
    if setting.whole_runs:
        setting.runs = train_both(args, setting)
        print_runs(args, setting.runs)
    return dict(goals=ratios, loss_checks=losses, idle_check=idle)


# ---- whole runs


def run_training(name, command, folder):
    """Trains to the end. Returns figures of the last epoch and of the end event of its --metrics file."""
    metrics = folder / "metrics.jsonl"
    done = subprocess.run([*command, "--metrics", str(metrics)], stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"error: {name} ended with code {done.returncode}\n  {shlex.join(command)}")
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    metrics.unlink()
    last = [event for event in events if event["event"] == "epoch"][-1]
    return dict(name=name, train_loss=last["train_loss"], test_accuracy=last["test_accuracy"],
                seconds_per_epoch=events[-1]["seconds_per_epoch"])


def train_both(args, setting):
    own = ["--devices", "cpu", "--kernels", setting.kernels]
    flags = ["--epochs", str(args.epochs), "--batch-size", str(args.batch_size), "--lr", str(setting.lr),
             "--seed", str(args.seed), "--data", args.data, "--threads", str(CORES)]
    if args.limit_train:
        flags += ["--limit-train", str(args.limit_train)]
    with tempfile.TemporaryDirectory() as folder:
        lockstep = run_training("lockstep cpu", [args.lockstep, "train", *own, *flags], Path(folder))
        python = run_training("Python eager", [sys.executable, str(HERE / "baseline_pytorch.py"), *flags], Path(folder))
    return [lockstep, python]


def print_runs(args, runs):
    print(f"#\n# {args.epochs} epoch{'s' if args.epochs > 1 else ''} of {args.limit_train or 'all'} rows "
          "from the same weights in the same order")
    print(f"{'run':<16} {'sec/epoch':>9} {'train loss':>11} {'test acc':>9}")
    for run in runs:
        print(f"{run['name']:<16} {run['seconds_per_epoch']:>9.2f} {run['train_loss']:>11.6f} "
              f"{run['test_accuracy']:>9.4f}")
    lockstep, python = runs
    print(f"{'ratio':<16} {lockstep['seconds_per_epoch'] / python['seconds_per_epoch']:>9.3f}")


# ---- the whole


def available_bytes():
    lines = dict(line.split(":") for line in open("/proc/meminfo"))
    return 1024 * int(lines["MemAvailable"].split()[0])


def defaults(name):
    return ", ".join(f"{model} {values[name]:g}" for model, values in MODELS.items())


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True, metavar="PROGRAM")
    parser.add_argument("--compare-case", required=True, metavar="PROGRAM", help="built from compare_case.cpp")
    parser.add_argument("--model", type=list_of(MODELS), default=USUAL_MODELS, metavar="LIST",
                        help=f"of {','.join(MODELS)}; default: {','.join(USUAL_MODELS)}. mlp, wide_mlp, cnn and gpt are networks "
                        "of one's own, of torch's layers; program_... are exported")
    parser.add_argument("--kernels", choices=["auto", "torch"], default="auto",
                        help="of lockstep's cases; torch: as a network of one's own has them. Judges times beside DDP's alone")
    parser.add_argument("--precision", choices=PRECISIONS, help="default: all")
    parser.add_argument("--against", type=list_of(goals.PYTHONS), default=goals.PYTHONS, metavar="LIST",
                        help="of eager,ddp,compile; default: all three")
    parser.add_argument("--compile-mode", choices=["default", "max-autotune", "fastest"], default="fastest",
                        help="of torch.compile; fastest: tries both at the start")
    parser.add_argument("--memory-format", choices=["contiguous", "channels_last"], default="channels_last",
                        help="of Python's images and convolutions; default: channels_last, which is faster on CPUs; "
                        "contiguous: as in the chapters")
    add_data_flag(parser)
    parser.add_argument("--repeat", type=positive, metavar="N",
                        help=f"repetitions; default: {defaults('repeat')}; fewer than {goals.MIN_REPETITIONS} "
                        "judge no goals")
    parser.add_argument("--steps", type=positive, help="per repetition; default: " + defaults("steps"))
    parser.add_argument("--warmup", type=positive, metavar="STEPS", help="default: " + defaults("warmup"))
    parser.add_argument("--epochs", type=positive, default=1, help="of the whole runs")
    parser.add_argument("--limit-train", type=positive, metavar="N", help="rows of the whole runs; default: all")
    parser.add_argument("--batch-size", type=positive, default=256, help="global")
    parser.add_argument("--lr", type=float, help="default: " + defaults("lr"))
    parser.add_argument("--seed", type=int, default=0)
    add_output_flags(parser)
    return parser.parse_args()


def write_json(args, env, settings, judged):
    def describe(setting, found):
        values = {field.name: getattr(setting, field.name) for field in dataclasses.fields(setting)}
        for name in ("cases", "witnesses"):
            values[name] = [case.as_json() for case in values[name].values()]
        return dict(**values, **found)

    result = dict(environment=env, settings=[describe(setting, found) for setting, found in zip(settings, judged)])
    write_whole(args.json, json.dumps(result, indent=1) + "\n")


def main():
    args = parse()
    check_outputs(args)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # runs the clean-up
    env = environment(args.lockstep) | dict(batch_size=args.batch_size, seed=args.seed)
    print_environment(env)
    if CORES != 2:
        print("# the goals are for two cores: taskset -c 0,1 gives two")
    settings = make_settings(args)
    judged = [measure_setting(args, setting) for setting in settings]
    text = "\n".join(goals.page_lines(args, env, settings))
    print(f"#\n{text}")
    if args.markdown:
        write_whole(args.markdown, text + "\n")
    if args.json:
        write_json(args, env, settings, judged)
    rows = [row for found in judged for row in (*found["goals"], *found["loss_checks"], found["idle_check"])]
    sys.exit(1 if any(row["met"] is False for row in rows) else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
