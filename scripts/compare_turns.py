#!/usr/bin/env python3
"""lockstep and eager Python torch in turn on one machine. compare_pytorch.sh builds what this needs and calls it.

Runs in the Python that has torch, which then also runs the baseline.

Turns: every contender is a process of its own that stays alive, warmed up and idle but for its turn. In a turn each
takes the same number of steps, one after the other, in an order that is reversed from turn to turn; ratios are taken
within a turn, and their median counts. So what slows the machine down for a while slows both sides of a ratio.
Contenders speak a protocol of lines: they print `ready {...}`, and for each line `run N` one line of JSON.

Runs: `lockstep train` and scripts/baseline_pytorch.py train from the same weights in the same order of rows.

Exit codes: 0 all is well, 1 a goal is missed or the contenders computed different things, 2 usage, 7 output file.
"""
import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORES = len(os.sched_getaffinity(0))
MIN_TURNS = 7  # fewer show that it works and judge nothing
# Between rounding, up to 2e-7, and what another order of rows, other weights or 1 % more learning rate make of the loss
# while it is still on its first plateau: 7e-7 and more.
LOSS_TOLERANCE = 5e-7
PHASES = ["data", "compute", "sync", "update"]


class Contender:
    """A warmed-up process that takes steps on request."""

    def __init__(self, name, replicas, threads, command):
        self.name, self.replicas, self.threads, self.command = name, replicas, threads, command
        self.turns = []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.versions = json.loads(self.answer().removeprefix("ready "))

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"error: {self.name} ended with code {self.process.wait()}\n  {shlex.join(self.command)}")
        return line

    def run(self, steps):
        print(f"run {steps}", file=self.process.stdin)
        self.turns.append(json.loads(self.answer()))

    def end(self):
        self.process.stdin.close()
        self.process.wait()

    def per_step_ms(self, key, steps):
        return [1e3 * turn[key] / steps for turn in self.turns]


def contenders(args):
    def common(threads):
        return ["--threads", str(threads), "--batch-size", str(args.batch_size), "--lr", str(args.lr),
                "--seed", str(args.seed), "--data", args.data, "--warmup", str(args.warmup)]

    def ours(devices, threads):
        replicas = int(devices.partition("x")[2] or 1)
        return Contender(f"lockstep {devices}", replicas, threads,
                         [args.contender, "--devices", devices, *common(threads)])

    python = [sys.executable, str(HERE / "baseline_pytorch.py"), "--turns"]
    return dict(ours=ours("cpu", CORES), python=Contender("Python torch", 1, CORES, [*python, *common(CORES)]),
                two=ours("cpux2", 1), one=ours("cpu", 1))


def take_turns(args, rivals):
    order = list(rivals.values())
    for turn in range(args.turns):
        for contender in order if turn % 2 == 0 else reversed(order):
            contender.run(args.steps)
        times = (f"{c.name} x {c.threads} {c.per_step_ms('seconds', args.steps)[-1]:.1f} ms" for c in order)
        print(f"turn {turn + 1}/{args.turns}: {', '.join(times)}", file=sys.stderr)


# ---- what the turns say


def spread(values):
    return dict(median=statistics.median(values), min=min(values), max=max(values))


def paired(above, below):
    """Ratios of the seconds, turn by turn."""
    return [a["seconds"] / b["seconds"] for a, b in zip(above.turns, below.turns)]


def outside(contender):
    """Share of each turn that is neither forward, backward, sync nor update."""
    return [1 - (t["compute"] + t["sync"] + t["update"]) / t["seconds"] for t in contender.turns]


def judge(args, rivals):
    """One row a goal: what, the spread over the turns, the limit, whether it is met (None: too few turns to say)."""
    def row(what, values, relation, limit):
        found = spread(values)
        met = found["median"] <= limit if relation == "<=" else found["median"] >= limit
        return dict(what=what, **found, relation=relation, limit=limit, met=met if args.turns >= MIN_TURNS else None)

    ours, python, two, one = (rivals[key] for key in ("ours", "python", "two", "one"))
    return [row(f"ms of {ours.name} / ms of {python.name}, {CORES} threads each", paired(ours, python), "<=", 1.03),
            row("images/s of cpux2 / images/s of cpu, 1 thread a replica", paired(one, two), ">=", 1.92),
            row(f"share outside compute, sync and update, {ours.name}", outside(ours), "<=", 0.02),
            row(f"share outside compute, sync and update, {two.name}", outside(two), "<=", 0.02)]


def loss_difference(rivals):
    """The largest relative difference of the mean losses of the first turn. Later ones say less: float sums in
    another order drift apart as training goes on."""
    losses = [contender.turns[0]["loss"] for contender in rivals.values()]
    return (max(losses) - min(losses)) / min(losses)


def table(args, rivals):
    print(f"#\n# {args.turns} turns of {args.steps} steps each; ms a step: median (min - max); phases: medians; "
          "other: what no phase holds")
    print(f"{'contender':<16} {'replicas':>8} {'threads':>7} {'ms/step':>8} {'min':>8} {'max':>8} {'img/s':>7}  "
          + " ".join(f"{phase:>7}" for phase in [*PHASES, "other"]))
    for c in rivals.values():
        step = spread(c.per_step_ms("seconds", args.steps))
        phases = [statistics.median(c.per_step_ms(phase, args.steps)) for phase in PHASES]
        other = statistics.median(1e3 * (t["seconds"] - sum(t[p] for p in PHASES)) / args.steps for t in c.turns)
        print(f"{c.name:<16} {c.replicas:>8} {c.threads:>7} {step['median']:>8.2f} {step['min']:>8.2f} "
              f"{step['max']:>8.2f} {1e3 * args.batch_size / step['median']:>7.0f}  "
              + " ".join(f"{value:>7.2f}" for value in [*phases, other]))


def print_goals(goals):
    print(f"#\n{'ratio, paired within a turn':<62} {'median':>7} {'min':>7} {'max':>7}  {'goal':>7}")
    for g in goals:
        verdict = {True: "OK", False: "FAILED", None: f"not judged: under {MIN_TURNS} turns"}[g["met"]]
        print(f"{g['what']:<62} {g['median']:>7.3f} {g['min']:>7.3f} {g['max']:>7.3f}  "
              f"{g['relation']} {g['limit']:<5g} {verdict}")


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


def train_both(args):
    flags = ["--epochs", str(args.epochs), "--batch-size", str(args.batch_size), "--lr", str(args.lr),
             "--seed", str(args.seed), "--data", args.data, "--threads", str(CORES)]
    if args.limit_train:
        flags += ["--limit-train", str(args.limit_train)]
    with tempfile.TemporaryDirectory() as folder:
        ours = run_training("lockstep cpu", [args.lockstep, "train", "--devices", "cpu", *flags], Path(folder))
        python = run_training("Python torch", [sys.executable, str(HERE / "baseline_pytorch.py"), *flags], Path(folder))
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


def cpu_model():
    names = [line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return names[0] if names else platform.machine()


def environment(args):
    version = subprocess.run([args.lockstep, "--version"], capture_output=True, text=True, check=True).stdout
    return dict(command=shlex.join(sys.argv), lockstep=version.splitlines()[0], cpu=cpu_model(), cores=CORES,
                load_before=os.getloadavg()[0], kernel=platform.release(), batch_size=args.batch_size, lr=args.lr,
                seed=args.seed, turns=args.turns, steps=args.steps, warmup=args.warmup)


def print_preamble(env, rivals):
    python = rivals["python"].versions
    print(f"# {env['lockstep']} against Python {python['python']}, torch {python['torch']}, eager")
    print(f"# command: {env['command']}")
    print(f"# cpu: {env['cpu']}, {env['cores']} cores, load {env['load_before']:.2f} before the start")
    print(f"# LeNet, fp32, batch {env['batch_size']}, lr {env['lr']}, seed {env['seed']}, "
          f"{env['warmup']} warm-up steps")


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True, metavar="PROGRAM")
    parser.add_argument("--contender", required=True, metavar="PROGRAM", help="built from scripts/contender.cpp")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_DATA", "/usr/share/datasets/fashion-mnist"),
                        metavar="DIR")
    parser.add_argument("--turns", type=positive, default=11, help=f"at least {MIN_TURNS}, or the goals are not judged")
    parser.add_argument("--steps", type=positive, default=20, help="of a turn")
    parser.add_argument("--warmup", type=positive, default=5, metavar="STEPS")
    parser.add_argument("--epochs", type=positive, default=1, help="of the whole runs")
    parser.add_argument("--limit-train", type=positive, metavar="N", help="rows of the whole runs; default: all")
    parser.add_argument("--batch-size", type=positive, default=256, help="global")
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="the same numbers, turn by turn")
    parser.add_argument("--overwrite", action="store_true", help="write over an existing --json FILE")
    return parser.parse_args()


def check_output(args):
    """Before the work, so that a path that cannot be written costs no minute."""
    if not args.json:
        return
    path = Path(args.json)
    problem = ("is a folder" if path.is_dir() else
               "exists, and --overwrite is not given" if path.exists() and not args.overwrite else
               "is in a folder that cannot be written" if not os.access(path.parent, os.W_OK) else None)
    if problem:
        print(f"error: --json {path} {problem}", file=sys.stderr)
        sys.exit(7)


def main():
    args = parse()
    check_output(args)
    env = environment(args)
    rivals = contenders(args)
    print_preamble(env, rivals)
    take_turns(args, rivals)
    for contender in rivals.values():
        contender.end()  # before the whole runs, which want the cores and the memory
    table(args, rivals)
    goals = judge(args, rivals)
    print_goals(goals)
    difference = loss_difference(rivals)
    same = difference <= LOSS_TOLERANCE
    print(f"{'largest relative difference of the losses of turn 1':<62} {difference:>7.1e} {'':>17}"
          f"<= {LOSS_TOLERANCE:<5g} {'OK' if same else 'FAILED'}")
    runs = train_both(args)
    print_runs(args, runs)
    if args.json:
        rows = [dict(name=c.name, replicas=c.replicas, threads=c.threads, command=c.command, **c.versions, turns=c.turns)
                for c in rivals.values()]
        result = dict(environment=env, contenders=rows, goals=goals, loss_difference=difference, runs=runs)
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if same and all(goal["met"] is not False for goal in goals) else 1)


if __name__ == "__main__":
    main()
