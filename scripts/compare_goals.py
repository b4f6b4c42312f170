"""What the turns of compare_turns.py say: tables, ratios paired within a turn, the goals they are held against."""
import statistics

from compare_contenders import CORES

MIN_TURNS = 7  # fewer show that it works and judge nothing
PHASES = ["data", "compute", "sync", "update"]
PYTHONS = ["eager", "ddp", "compile"]
NAMES = dict(eager="Python eager", ddp="Python DDP", compile="torch.compile")
WIDTH, NAME_WIDTH = 60, 22  # of a row's name, of a contender's

# ms of a step of STEP_BATCH images by lockstep's better layout, and by `direct`, on two cores with AVX-512 (ResNet-18's
# in bf16: with AVX512_BF16). Times wander with the machine's own speed: ratios within a turn say more.
STEP_MS = {"lenet fp32": dict(best=5.5, direct=14.5), "resnet18 fp32": dict(best=1600),
           "resnet18 bf16": dict(best=1200)}
STEP_BATCH = 256

# LeNet: between rounding, up to 2e-7, and what another order of rows, other weights or 1 % more learning rate make of
# the loss while it is still on its first plateau: 7e-7 and more. That holds for fp32 beside bf16 too, where lockstep's
# kernels stay in fp32 and Python's do not: products that small beside the biases, which stay floats, weigh little (of
# Python's mean losses of steps 6 to 25, seeds 0 to 2, bf16 changes 5e-8 and 1 % more learning rate 7e-7 to 9e-7).
LENET_TOLERANCE = 5e-7
# ResNet-18: the same kernels on the same shares of the rows, summed in the same order, give the same bits, and nothing
# less would be a check: torch's kernels on both sides. From these initial weights rounding alone (our kernels, another
# number of threads or memory format) grows to 1 % of the loss within four steps, bf16's to 10 %, while 1 % more
# learning rate makes .4 % and another order of rows 9 % and more. So the loss cannot judge our kernels in bf16; their
# tests hold single results against double. Two replicas are compared with two: each normalises its batch by its own
# rows' statistics.
SAME_BITS = 1e-6
RESNET18_DRIFT = dict(fp32=0.05, bf16=None)


def spread(values):
    return dict(median=statistics.median(values), min=min(values), max=max(values))


def paired(above, below):
    """Ratios of the seconds, turn by turn."""
    return [a["seconds"] / b["seconds"] for a, b in zip(above.turns, below.turns)]


def share(contender, *phases):
    return [sum(turn[phase] for phase in phases) / turn["seconds"] for turn in contender.turns]


def outside(contender):
    """Share of each turn that is neither forward, backward, sync nor update."""
    return [1 - inside for inside in share(contender, "compute", "sync", "update")]


def best_layout(rivals):
    """lockstep with one replica on all cores or with a replica on each, whichever is faster here."""
    return min((rivals["ours"], rivals["two"]), key=lambda c: statistics.median(t["seconds"] for t in c.turns))


def row(case, what, values, relation=None, limit=None):
    """What, the spread over the turns, the limit if there is one, whether it is met (None: no limit, or too few turns
    to say)."""
    found = spread(values)
    met = None
    if limit is not None and case.turns >= MIN_TURNS:
        met = found["median"] <= limit if relation == "<=" else found["median"] >= limit
    return dict(what=what, **found, relation=relation, limit=limit, met=met)


def step_limits(args, case):
    """STEP_MS of this case, nothing where the run is not what they are for."""
    return STEP_MS.get(case.name, {}) if CORES == 2 and args.batch_size == STEP_BATCH else {}


def leaders(rivals):
    """By the roles of STEP_MS: the contenders whose speed is judged."""
    return dict(best=best_layout(rivals)) | {role: rivals[role] for role in ("direct",) if role in rivals}


def step_rows(args, case, rivals):
    limits = step_limits(args, case)
    return [row(case, f"ms a step, {c.name}", c.per_step_ms("seconds", case.steps), "<=", limits.get(role))
            for role, c in leaders(rivals).items()]


def python_rows(case, rivals):
    pythons = {role: rivals[role] for role in PYTHONS if role in rivals}
    best = best_layout(rivals)
    rows = [row(case, f"ms of {c.name} / ms of {python.name}", paired(c, python),
                *(("<=", 1.03) if c is best and role != "compile" else ()))
            for c in leaders(rivals).values() for role, python in pythons.items()]
    return rows + [row(case, f"ms of {c.name} / ms of {pythons[role].name}, same layout", paired(c, pythons[role]))
                   for role, c in (("eager", rivals["ours"]), ("ddp", rivals["two"]))
                   if role in pythons and c is not best]


def kernel_rows(case, rivals):
    """What our kernels gain."""
    named = leaders(rivals)
    rows = [row(case, f"ms of {c.name} / ms of {rivals['stock'].name}", paired(c, rivals["stock"]))
            for c in named.values()]
    if "direct" in named:
        two = rivals["two"]
        rows.append(row(case, f"ms of {two.name} / ms of {named['direct'].name}", paired(two, named["direct"])))
    return rows


def scaling_rows(case, rivals):
    ours, two, one, apart = (rivals[role] for role in ("ours", "two", "one", "apart"))
    rows = [row(case, "images/s of cpux2 / images/s of cpu, 1 thread a replica", paired(one, two), ">=", 1.92),
            row(case, f"images/s of {apart.name} / images/s of cpu, the bound", paired(one, apart)),
            row(case, f"ms of cpux2 / ms of {apart.name}", paired(two, apart))]
    if case.model == "resnet18":
        rows.append(row(case, f"exposed sync / step, {two.name}", share(two, "sync"), "<=", 0.03))
    return rows + [row(case, f"share outside compute, sync and update, {c.name}", outside(c), "<=", 0.02)
                   for c in (ours, two)]


def judge(args, case, rivals):
    return (step_rows(args, case, rivals) + python_rows(case, rivals) + kernel_rows(case, rivals)
            + scaling_rows(case, rivals))


def loss_checks(args, case, rivals):
    """Largest relative difference of the mean losses of the first turn among contenders that compute the same. Later
    turns say less: float sums in another order drift apart as training goes on."""
    def check(who, roles, limit):
        losses = [rivals[role].turns[0]["loss"] for role in roles if role in rivals]
        difference = (max(losses) - min(losses)) / min(losses)
        return dict(what=f"relative difference of turn 1's losses, {who}", difference=difference, limit=limit,
                    met=difference <= limit if limit else None)

    if case.model == "lenet":
        return [check("all", ["ours", "two", "one", "direct", "stock", *PYTHONS], LENET_TOLERANCE)]
    same_kernels = SAME_BITS if args.memory_format == "channels_last" else None
    drift = RESNET18_DRIFT[case.precision]
    pairs = [("cpu stock, eager", "stock", "eager", same_kernels),
             ("cpux2 stock, DDP", "stock_two", "ddp", same_kernels),
             ("cpu, eager", "ours", "eager", drift), ("cpux2, DDP", "two", "ddp", drift),
             ("cpu, cpu stock", "ours", "stock", drift), ("compile, eager", "compile", "eager", drift)]
    return [check(who, [a, b], limit) for who, a, b, limit in pairs if a in rivals and b in rivals]


def idle_check(case, rivals):
    """Cores' share that contenders took while it was another's turn."""
    seconds = sum(turn["seconds"] for c in rivals.values() for turn in c.turns)
    taken = sum(c.idle_cpu_seconds for c in rivals.values()) / seconds
    return dict(what="cores taken by contenders whose turn it was not", share=taken, limit=0.01,
                met=taken <= 0.01 if case.turns >= MIN_TURNS else None)


def print_table(args, case, rivals):
    print(f"#\n# {case.turns} turns of {case.steps} steps each; ms a step: median (min - max); phases: medians; "
          "other: what no phase holds")
    print(f"{'contender':<{NAME_WIDTH}} {'replicas':>8} {'threads':>7} {'ms/step':>8} {'min':>8} {'max':>8} {'img/s':>7}  "
          + " ".join(f"{phase:>7}" for phase in [*PHASES, "other"]))
    for c in rivals.values():
        step = spread(c.per_step_ms("seconds", case.steps))
        known = [phase for phase in PHASES if c.turns[0][phase] is not None]
        phases = {phase: statistics.median(c.per_step_ms(phase, case.steps)) for phase in known}
        phases["other"] = statistics.median(
            1e3 * (turn["seconds"] - sum(turn[phase] for phase in known)) / case.steps for turn in c.turns)
        cells = (f"{phases[phase]:>7.2f}" if phase in phases else f"{'-':>7}" for phase in [*PHASES, "other"])
        print(f"{c.name:<{NAME_WIDTH}} {c.replicas:>8} {c.threads:>7} {step['median']:>8.2f} {step['min']:>8.2f} "
              f"{step['max']:>8.2f} {1e3 * args.batch_size / step['median']:>7.0f}  {' '.join(cells)}")


def verdict(met):
    return {True: "OK", False: "FAILED", None: f"not judged: under {MIN_TURNS} turns"}[met]


def print_goals(goals):
    print(f"#\n{'paired within a turn':<{WIDTH}} {'median':>8} {'min':>8} {'max':>8}  {'goal':>7}")
    for g in goals:
        goal = f"  {g['relation']} {g['limit']:<5g} {verdict(g['met'])}" if g["limit"] else ""
        print(f"{g['what']:<{WIDTH}} {g['median']:>8.3f} {g['min']:>8.3f} {g['max']:>8.3f}{goal}")


def print_checks(losses, idle):
    for check in losses:
        goal = f"{'':>20}<= {check['limit']:<5g} {verdict(check['met'])}" if check["limit"] else ""
        print(f"{check['what']:<{WIDTH}} {check['difference']:>8.1e}{goal}")
    print(f"{idle['what']:<{WIDTH}} {idle['share']:>8.3f}{'':>20}<= {idle['limit']:<5g} {verdict(idle['met'])}")


def print_compile(rivals):
    """Who is ahead, lockstep's best or torch.compile, and by how much."""
    if "compile" not in rivals:
        return
    best, compiled = best_layout(rivals), rivals["compile"]
    ratio = statistics.median(paired(best, compiled))
    first, second, gain = (compiled, best, ratio) if ratio > 1 else (best, compiled, 1 / ratio)
    trials = ", ".join(f"{mode} {ms:.1f}" for mode, ms in compiled.versions["trial_ms"].items())
    print(f"# {first.name} is {gain:.2f} times as fast as {second.name}; torch.compile's mode: "
          f"{compiled.versions['compile_mode']} (ms of a step when it was chosen: {trials})")
