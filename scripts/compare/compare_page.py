"""The results of compare_pytorch.py as one Markdown table, in the form of docs/results.md."""
import statistics

import compare_goals as goals
from compare_gpu_goals import cell, markdown

HEAD = ["", "lockstep", "ms per step (min - max)", "goal", *(f"/ {name}" for name in goals.NAMES.values()),
        "/ lockstep, torch's kernels", "`cpux2` / one 1-thread replica", "the bound", "2 processes / Python DDP",
        "2 processes / `cpux2`"]


def milliseconds(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def step_cells(args, setting, role, case):
    """Returns the cells of the time of a step and of its goal."""
    limit = goals.limits_of(goals.STEP_MS, args, setting).get(role)
    found = goals.row(setting, "", case.per_step_ms("seconds", setting.steps), "<=", limit)
    median, low, high = (milliseconds(found[key]) for key in ("median", "min", "max"))
    verdict = {True: "met", False: "missed", None: "not judged"}[found["met"]]
    return [f"{median} ({low} - {high})", f"{limit:g}: {verdict}" if limit else "-"]


def ratio(above, below):
    """Returns the median of the ratios within a repetition."""
    return statistics.median(goals.paired(above, below)) if above and below else None


def setting_row(args, setting, role, case):
    cases = setting.cases
    of_times = [ratio(case, cases.get(other)) for other in (*goals.PYTHONS, "torch")]
    # Two replicas against one, and two processes; the same for all layouts, so only in the first row.
    first = role == "best"
    of_speeds = [ratio(cases["one"], cases[other]) if first else None for other in ("two", "apart")]
    of_processes = [ratio(cases["processes"], cases.get(other)) if first else None for other in ("ddp", "two")]
    return [setting.title, f"`{case.name.removeprefix('lockstep ')}`", *step_cells(args, setting, role, case),
            *(cell(value, ".2f") for value in of_times), *(cell(value, ".3f") for value in of_speeds),
            *(cell(value, ".2f") for value in of_processes)]


def table(args, settings):
    return markdown(HEAD, [setting_row(args, setting, role, case)
                           for setting in settings for role, case in goals.leaders(setting.cases).items()])


def lines(args, env, settings):
    taken = ", ".join(f"{goals.counted(setting.repetitions, 'repetition')} of {goals.counted(setting.steps, 'step')} "
                      f"({setting.title})" for setting in settings)
    yield (f"{env['cpu']}, {env['cores']} cores, kernel {env['kernel']}; {env['lockstep']}; Python {env['python']}, "
           f"torch {env['torch']}. {args.batch_size} images per step. {taken}.")
    yield ""
    yield from table(args, settings)
