"""Evaluates the repetitions of compare_pytorch.py: tables, ratios paired within a repetition, goals."""
import statistics

from common import CORES, cell, markdown, median_and_range
from compare_cases import PROGRAMS

MIN_REPETITIONS = 7  # with fewer, goals are not judged
PHASES = ["data", "compute", "sync", "update"]
PYTHONS = ["eager", "ddp", "compile"]
NAMES = dict(eager="Python eager", ddp="Python DDP", compile="torch.compile")
WIDTH, NAME_WIDTH = 60, 22  # of the names of rows and of cases

# Goals in ms for a step of STEP_BATCH images, of lockstep's better layout and of `direct`, on two cores with AVX-512
# (ResNet-18 in bf16: with AVX512_BF16). Times vary with the machine's speed: ratios within a repetition say more.
STEP_MS = {"lenet fp32": dict(best=5.5, direct=14.5), "resnet18 fp32": dict(best=1600),
           "resnet18 bf16": dict(best=1200)}
STEP_BATCH = 256
# Goals for the time of two processes: as a ratio to DistributedDataParallel's, and to that of two replicas in one process.
PROCESSES = {"lenet fp32": dict(ddp=0.30, two=1.5), "resnet18 fp32": dict(ddp=0.50, two=1.05),
             "resnet18 bf16": dict(ddp=0.70, two=1.06)}

# LeNet's loss on its first plateau: rounding changes it by up to 2e-7; another order of rows, other weights or 1 % more
# learning rate change it by 7e-7 and more. The limit lies between them. It also holds in bf16, where lockstep's kernels
# stay in fp32 and Python's do not: the products are small beside the biases, which stay floats. (Of Python's mean losses
# of steps 6 to 25, seeds 0 to 2, bf16 changes 5e-8, and 1 % more learning rate 7e-7 to 9e-7.)
LENET_TOLERANCE = 5e-7
# ResNet-18: torch's kernels on both sides, on the same rows and summed in the same order, must give the same bits. Other
# pairs differ by rounding (lockstep's kernels, the number of threads, the memory format). From these initial weights it
# grows to 1 % of the loss within four steps, in bf16 to 10 %; 1 % more learning rate changes .4 %, another order of rows
# 9 % and more. So the loss cannot judge lockstep's kernels in bf16; their tests compare single results with double. Two
# replicas are compared with two: each normalises by the statistics of its own rows.
SAME_BITS = 1e-6
RESNET18_DRIFT = dict(fp32=0.05, bf16=None)
# Networks of one's own: torch's layers on both sides, from the same weights; only the order of sums differs. The loss falls
# from the start, so rounding grows faster than on LeNet's plateau: by 2e-7 in fp32 and 1e-5 in bf16 for the MLP, whose first
# repetition is the longest. 1 % more learning rate changes it by 1e-4 and more.
OWN_MODELS = ["mlp", "wide_mlp", "cnn", "gpt"]
OWN_TOLERANCE = 5e-5
# Goals where both sides have torch's kernels: lockstep's time over DistributedDataParallel's, where that is below
# SHORT_STEP_MS, and elsewhere.
SHORT_STEP_MS, SHORT_STEP_GOAL, STEP_GOAL = 20, 0.95, 1.0
# The goal for a program: its time over that of the same network in C++.
HAND_GOAL = 1.02
# The goal of a sharded optimizer, in a step of which the update is a large part: its time over that without.
SHARD_GOAL = 0.9
IDLE_CORES = 0.02


def counted(count, noun):
    return f"{count} {noun}{'' if count == 1 else 's'}"


def paired(above, below):
    """Returns the ratio of the seconds of each repetition."""
    return [a["seconds"] / b["seconds"] for a, b in zip(above.repetitions, below.repetitions)]


def share(case, *phases):
    return [sum(repetition[phase] for phase in phases) / repetition["seconds"] for repetition in case.repetitions]


def outside(case):
    """Returns the share of each repetition that is neither forward, backward, sync nor update."""
    return [1 - inside for inside in share(case, "compute", "sync", "update")]


def best_layout(cases):
    """Returns lockstep's faster case: one replica on all cores, or one replica per core."""
    return min((cases["all_cores"], cases["two"]), key=lambda c: statistics.median(t["seconds"] for t in c.repetitions))


def row(setting, what, values, relation=None, limit=None):
    """Returns a row: median and range over the repetitions, the limit if there is one, and whether it is met (None: no
    limit, or too few repetitions)."""
    found = median_and_range(values)
    met = None
    if limit is not None and setting.repetitions >= MIN_REPETITIONS:
        met = found["median"] <= limit if relation == "<=" else found["median"] >= limit
    return dict(what=what, **found, relation=relation, limit=limit, met=met)


def limits_of(goals, args, setting):
    """Returns the goals of this setting; nothing where cores, kernels or batch size differ from those that they are for."""
    usual = CORES == 2 and args.batch_size == STEP_BATCH and setting.kernels == "auto"
    return goals.get(setting.name, {}) if usual else {}


def leaders(cases):
    """Returns the cases whose speed is judged, by the roles of STEP_MS."""
    return dict(best=best_layout(cases)) | {role: cases[role] for role in ("direct",) if role in cases}


def step_rows(args, setting, cases):
    limits = limits_of(STEP_MS, args, setting)
    return [row(setting, f"ms per step, {c.name}", c.per_step_ms("seconds", setting.steps), "<=", limits.get(role))
            for role, c in leaders(cases).items()]


def python_rows(setting, cases):
    pythons = {role: cases[role] for role in PYTHONS if role in cases}
    best = best_layout(cases)
    rows = [row(setting, f"ms of {c.name} / ms of {python.name}", paired(c, python),
                *(("<=", 1.03) if c is best and role != "compile" else ()))
            for c in leaders(cases).values() for role, python in pythons.items()]
    return rows + [row(setting, f"ms of {c.name} / ms of {pythons[role].name}, same layout", paired(c, pythons[role]))
                   for role, c in (("eager", cases["all_cores"]), ("ddp", cases["two"]))
                   if role in pythons and c is not best]


def kernel_rows(setting, cases):
    """Returns the gains of lockstep's kernels over torch's."""
    named = leaders(cases)
    rows = [row(setting, f"ms of {c.name} / ms of {cases['torch'].name}", paired(c, cases["torch"]))
            for c in named.values() if "torch" in cases]
    if "direct" in named:
        two = cases["two"]
        rows.append(row(setting, f"ms of {two.name} / ms of {named['direct'].name}", paired(two, named["direct"])))
    return rows


def scaling_rows(setting, cases):
    all_cores, two, one, apart = (cases[role] for role in ("all_cores", "two", "one", "apart"))
    rows = [row(setting, "images/s of cpux2 / images/s of cpu, 1 thread per replica", paired(one, two), ">=", 1.92),
            row(setting, f"images/s of {apart.name} / images/s of cpu, the bound", paired(one, apart)),
            row(setting, f"ms of cpux2 / ms of {apart.name}", paired(two, apart))]
    if setting.model == "resnet18":
        rows.append(row(setting, f"exposed sync / step, {two.name}", share(two, "sync"), "<=", 0.03))
    return rows + [row(setting, f"share outside compute, sync and update, {c.name}", outside(c), "<=", 0.02)
                   for c in (all_cores, two)]


def process_rows(args, setting, cases):
    processes = cases["processes"]
    limits = limits_of(PROCESSES, args, setting)
    return [row(setting, f"ms of {processes.name} / ms of {cases[role].name}", paired(processes, cases[role]), "<=",
                limits.get(role)) for role in ("ddp", "two") if role in cases
            ] + [row(setting, f"exposed sync / step, {processes.name}", share(processes, "sync"))]


def own_rows(setting, cases):
    """Returns two replicas and two processes beside DistributedDataParallel, with the goals of torch's kernels."""
    if "ddp" not in cases:
        return []
    ddp = cases["ddp"]
    short = statistics.median(ddp.per_step_ms("seconds", setting.steps)) < SHORT_STEP_MS
    return [row(setting, f"ms of {c.name} / ms of {ddp.name}, torch's kernels", paired(c, ddp), "<=",
                SHORT_STEP_GOAL if short else STEP_GOAL) for c in (cases["two"], cases["processes"])]


def shard_rows(setting, cases):
    """Returns sharded optimizers beside unsharded ones, with their goal, and beside Python's."""
    sharded, processes, zero = (cases[role] for role in ("sharded", "sharded_processes", "zero"))
    return [row(setting, f"ms of {sharded.name} / ms of {cases['two'].name}", paired(sharded, cases["two"]), "<=", SHARD_GOAL),
            row(setting, f"ms of {processes.name} / ms of {cases['processes'].name}", paired(processes, cases["processes"]),
                "<=", SHARD_GOAL)
            ] + [row(setting, f"ms of {c.name} / ms of {zero.name}", paired(c, zero), "<=", STEP_GOAL)
                 for c in (sharded, processes)]


def program_rows(setting, cases):
    """Returns a program beside Python and beside the same network in C++, with their goals."""
    pairs = [(best_layout(cases), "eager", STEP_GOAL), (cases["two"], "ddp", STEP_GOAL),
             (cases["processes"], "ddp", STEP_GOAL), (cases["two"], "hand", HAND_GOAL)]
    return [row(setting, f"ms of {c.name} / ms of {cases[role].name}, program", paired(c, cases[role]), "<=", limit)
            for c, role, limit in pairs if role in cases]


def judge(args, setting, cases):
    rows = (step_rows(args, setting, cases) + python_rows(setting, cases) + kernel_rows(setting, cases)
            + scaling_rows(setting, cases) + process_rows(args, setting, cases))
    if setting.kernels == "auto":
        return rows
    # The goals of these rows are for lockstep's kernels.
    return [row | dict(relation=None, limit=None, met=None) for row in rows] + (
        program_rows if setting.model in PROGRAMS else own_rows)(setting, cases) + (
        shard_rows(setting, cases) if "sharded" in cases else [])


def loss_checks(args, setting, cases):
    """Compares the mean losses of the first repetition between cases that compute the same. Later repetitions say less:
    rounding grows as training goes on."""
    def check(who, roles, limit):
        losses = [cases[role].repetitions[0]["loss"] for role in roles if role in cases]
        difference = (max(losses) - min(losses)) / min(losses)
        return dict(what=f"relative difference of repetition 1's losses, {who}", difference=difference, limit=limit,
                    met=difference <= limit if limit else None)

    if setting.model in PROGRAMS:  # batch norms take the statistics of their replica, so the layout counts
        limit = OWN_TOLERANCE if setting.model == "program_gpt" else SAME_BITS
        pairs = [("cpu, eager", "all_cores", "eager"), ("cpux2, DDP", "two", "ddp"), ("cpux2, in C++", "two", "hand"),
                 ("cpux2, 2 processes", "two", "processes")]
        return [check(who, [a, b], limit) for who, a, b in pairs if a in cases and b in cases]
    if "sharded" in cases:
        return [check("sharded or not", roles, limit) for roles, limit in (
            (["two", "sharded"], SAME_BITS), (["processes", "sharded_processes"], SAME_BITS),
            (["all_cores", "two", "one", "processes", "eager", "ddp", "zero"], OWN_TOLERANCE))]
    if setting.model in OWN_MODELS:
        return [check("all but compile", ["all_cores", "two", "one", "processes", "eager", "ddp"], OWN_TOLERANCE)]
    if setting.model == "lenet":
        return [check("all", ["all_cores", "two", "one", "processes", "direct", "torch", *PYTHONS], LENET_TOLERANCE)]
    same_kernels = SAME_BITS if args.memory_format == "channels_last" else None
    drift = RESNET18_DRIFT[setting.precision]
    pairs = [("cpu torch, eager", "torch", "eager", same_kernels),
             ("cpux2 torch, DDP", "torch_two", "ddp", same_kernels),
             ("cpux2, 2 processes", "two", "processes", SAME_BITS),
             ("cpu, eager", "all_cores", "eager", drift), ("cpux2, DDP", "two", "ddp", drift),
             ("cpu, cpu torch", "all_cores", "torch", drift), ("compile, eager", "compile", "eager", drift)]
    return [check(who, [a, b], limit) for who, a, b, limit in pairs if a in cases and b in cases]


def idle_check(setting, cases):
    """Checks how much CPU time cases used while other cases ran. Processes that train together look after each other: the
    two of lockstep take .007 of a core for that, the two of DistributedDataParallel .004."""
    seconds = sum(repetition["seconds"] for c in cases.values() for repetition in c.repetitions)
    taken = sum(c.idle_cpu_seconds for c in cases.values()) / seconds
    return dict(what="cores used by idle cases", share=taken, limit=IDLE_CORES,
                met=taken <= IDLE_CORES if setting.repetitions >= MIN_REPETITIONS else None)


def print_table(args, setting, cases):
    print(f"#\n# {counted(setting.repetitions, 'repetition')} of {counted(setting.steps, 'step')}; "
          "ms per step: median (min - max); "
          "phases: medians; other: outside all phases")
    print(f"{'case':<{NAME_WIDTH}} {'replicas':>8} {'threads':>7} {'ms/step':>8} {'min':>8} {'max':>8} {'img/s':>7}  "
          + " ".join(f"{phase:>7}" for phase in [*PHASES, "other"]))
    for c in cases.values():
        step = median_and_range(c.per_step_ms("seconds", setting.steps))
        known = [phase for phase in PHASES if c.repetitions[0][phase] is not None]
        phases = {phase: statistics.median(c.per_step_ms(phase, setting.steps)) for phase in known}
        phases["other"] = statistics.median(
            1e3 * (repetition["seconds"] - sum(repetition[phase] for phase in known)) / setting.steps
            for repetition in c.repetitions)
        cells = (f"{phases[phase]:>7.2f}" if phase in phases else f"{'-':>7}" for phase in [*PHASES, "other"])
        print(f"{c.name:<{NAME_WIDTH}} {c.replicas:>8} {c.threads:>7} {step['median']:>8.2f} {step['min']:>8.2f} "
              f"{step['max']:>8.2f} {1e3 * args.batch_size / step['median']:>7.0f}  {' '.join(cells)}")


def verdict(met):
    return {True: "OK", False: "FAILED", None: f"not judged: fewer than {MIN_REPETITIONS} repetitions"}[met]


def print_goals(goals):
    print(f"#\n{'paired within a repetition':<{WIDTH}} {'median':>8} {'min':>8} {'max':>8}  {'goal':>7}")
    for g in goals:
        goal = f"  {g['relation']} {g['limit']:<5g} {verdict(g['met'])}" if g["limit"] else ""
        print(f"{g['what']:<{WIDTH}} {g['median']:>8.3f} {g['min']:>8.3f} {g['max']:>8.3f}{goal}")


def print_checks(losses, idle):
    for check in losses:
        goal = f"{'':>20}<= {check['limit']:<5g} {verdict(check['met'])}" if check["limit"] else ""
        print(f"{check['what']:<{WIDTH}} {check['difference']:>8.1e}{goal}")
    print(f"{idle['what']:<{WIDTH}} {idle['share']:>8.3f}{'':>20}<= {idle['limit']:<5g} {verdict(idle['met'])}")


def print_compile(cases):
    """Prints which is faster, lockstep's best case or torch.compile, and by how much."""
    if "compile" not in cases:
        return
    best, compiled = best_layout(cases), cases["compile"]
    ratio = statistics.median(paired(best, compiled))
    first, second, gain = (compiled, best, ratio) if ratio > 1 else (best, compiled, 1 / ratio)
    trials = ", ".join(f"{mode} {ms:.1f}" for mode, ms in compiled.versions["trial_ms"].items())
    print(f"# {first.name} is {gain:.2f} times as fast as {second.name}; torch.compile's mode: "
          f"{compiled.versions['compile_mode']} (ms per step when it was chosen: {trials})")


# ---- the table at the end, in the form of docs/results.md


HEAD = ["", "lockstep", "ms per step (min - max)", "goal", *(f"/ {name}" for name in NAMES.values()),
        "/ lockstep, torch's kernels", "`cpux2` / one 1-thread replica", "the bound", "2 processes / Python DDP",
        "2 processes / `cpux2`"]


def milliseconds(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def step_cells(args, setting, role, case):
    """Returns the cells of the time of a step and of its goal."""
    limit = limits_of(STEP_MS, args, setting).get(role)
    found = row(setting, "", case.per_step_ms("seconds", setting.steps), "<=", limit)
    median, low, high = (milliseconds(found[key]) for key in ("median", "min", "max"))
    verdict = {True: "met", False: "missed", None: "not judged"}[found["met"]]
    return [f"{median} ({low} - {high})", f"{limit:g}: {verdict}" if limit else "-"]


def median_ratio(above, below):
    """Returns the median of the ratios within a repetition."""
    return statistics.median(paired(above, below)) if above and below else None


def page_row(args, setting, role, case):
    cases = setting.cases
    of_times = [median_ratio(case, cases.get(other)) for other in (*PYTHONS, "torch")]
    # Two replicas against one, and two processes; the same for all layouts, so only in the first row.
    first = role == "best"
    of_speeds = [median_ratio(cases["one"], cases[other]) if first else None for other in ("two", "apart")]
    of_processes = [median_ratio(cases["processes"], cases.get(other)) if first else None for other in ("ddp", "two")]
    return [setting.title, f"`{case.name.removeprefix('lockstep ')}`", *step_cells(args, setting, role, case),
            *(cell(value, ".2f") for value in of_times), *(cell(value, ".3f") for value in of_speeds),
            *(cell(value, ".2f") for value in of_processes)]


def page_table(args, settings):
    return markdown(HEAD, [page_row(args, setting, role, case)
                           for setting in settings for role, case in leaders(setting.cases).items()])


def page_lines(args, env, settings):
    taken = ", ".join(f"{counted(setting.repetitions, 'repetition')} of {counted(setting.steps, 'step')} "
                      f"({setting.title})" for setting in settings)
    yield (f"{env['cpu']}, {env['cores']} cores, kernel {env['kernel']}; {env['lockstep']}; Python {env['python']}, "
           f"torch {env['torch']}. {args.batch_size} rows per step. {taken}.")
    yield ""
    yield from page_table(args, settings)
