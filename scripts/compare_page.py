"""The turns of compare_turns.py in the form of docs/results.md: one table of all cases, and where it was taken."""
import statistics

import compare_goals as goals
from compare_gpu_goals import cell, markdown

HEAD = ["", "lockstep", "ms a step (min - max)", "goal", *(f"/ {name}" for name in goals.NAMES.values()),
        "/ own stock layers", "`cpux2` / one 1-thread replica", "the bound"]


def milliseconds(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def step_cells(args, case, role, contender):
    """The time of a step and what was asked of it."""
    limit = goals.step_limits(args, case).get(role)
    found = goals.row(case, "", contender.per_step_ms("seconds", case.steps), "<=", limit)
    median, low, high = (milliseconds(found[key]) for key in ("median", "min", "max"))
    verdict = {True: "met", False: "missed", None: "not judged"}[found["met"]]
    return [f"{median} ({low} - {high})", f"{limit:g}: {verdict}" if limit else "-"]


def ratio(above, below):
    """Within a turn, the median."""
    return statistics.median(goals.paired(above, below)) if above and below else None


def case_row(args, case, role, contender):
    rivals = case.rivals
    of_times = [ratio(contender, rivals.get(other)) for other in (*goals.PYTHONS, "stock")]
    # Of two replicas against one, and of nothing else: it does not depend on the layout in this row.
    of_speeds = [ratio(rivals["one"], rivals[other]) if role == "best" else None for other in ("two", "apart")]
    return [case.title, f"`{contender.name.removeprefix('lockstep ')}`", *step_cells(args, case, role, contender),
            *(cell(value, ".2f") for value in of_times), *(cell(value, ".3f") for value in of_speeds)]


def table(args, cases):
    return markdown(HEAD, [case_row(args, case, role, contender)
                           for case in cases for role, contender in goals.leaders(case.rivals).items()])


def lines(args, env, cases):
    taken = ", ".join(f"{case.turns} turns of {case.steps} ({case.title})" for case in cases)
    yield (f"{env['cpu']}, {env['cores']} cores, kernel {env['kernel']}; {env['lockstep']}; Python {env['python']}, "
           f"torch {env['torch']}. {args.batch_size} images a step. Steps: {taken}.")
    yield ""
    yield from table(args, cases)
