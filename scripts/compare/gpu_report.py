#!/usr/bin/env python3
"""Writes the report of gpu_check.sh: gpu_check.json and gpu_check.md in a folder, one section per part.

    gpu_report.py DIR --part NAME --record FOLDER --torch PATH   adds the part whose steps, notes (file record) and results
                                                                 are in FOLDER; it may still be at work
    gpu_report.py DIR --join OTHER                               adds the parts that only OTHER's report has

A line of the record, with tabs between its fields:

    step  NAME EXIT_CODE SECONDS LIMIT LOG COMMAND   a step that ended by itself
    cut   NAME EXIT_CODE SECONDS LIMIT LOG COMMAND   one that was cut off; if it is run again, the later line counts
    left  NAME WHY                                   one that was not run
    note  TEXT

Exit codes: 0 every step of the part (with --join: of all parts) was run and passed, 1 not so, 2 usage. Needs only Python.
"""
import argparse
import datetime
import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path

from common import cell, markdown, torch_version, write_whole
from compare_gpu_goals import goal, goal_table, table

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["build", "test", "compare", "accuracy", "lease"]
RECIPES = ["lenet-scratch", "resnet18-pytorch"]
COLD_STARTS = dict(lenet=("LeNet", 2), resnet18=("ResNet-18 bf16", 7))


# ---- results of a part


def said(*command):
    try:
        lines = subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.splitlines()
        return lines[0].strip() if lines else "unknown"
    except OSError:
        return "unknown"


def read_facts(folder, torch):
    """Returns what is known of the machine; asks it once per part."""
    path = folder / "facts.json"
    if not path.exists():
        write_whole(path, json.dumps(facts(torch)))
    return json.loads(path.read_text())


def facts(torch):
    def gpu(what):
        return said("nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader")

    return dict(gpu=gpu("name"), memory=gpu("memory.total"), driver=gpu("driver_version"), sm_clock=gpu("clocks.sm"),
                max_sm_clock=gpu("clocks.max.sm"), power_limit=gpu("power.limit"), host=platform.node(), torch=torch_version(torch),
                commit=said("git", "rev-parse", "HEAD"),
                date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"))


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""


def last_line(log):
    """Returns the last line of a log; of an error with a hint, the error."""
    lines = [line for line in read(Path(log)).splitlines() if line.strip() and not line.startswith("hint: ")]
    return lines[-1].strip() if lines else ""


def read_record(folder):
    """Returns (steps, names of steps that were not run with the reason, notes)."""
    steps, left, notes = {}, [], []
    for line in read(folder / "record").splitlines():
        kind, *fields = line.split("\t")
        if kind == "note":
            notes.append(fields[0])
        elif kind == "left":
            left.append(dict(name=fields[0], why=fields[1]))
        else:
            name, code, seconds, limit, log, command = fields
            steps[name] = dict(name=name, exit_code=int(code), seconds=float(seconds), limit=int(limit), command=command,
                               last_line=last_line(log), cut_off=kind == "cut")
    left = [step for step in left if step["name"] not in steps]
    return list(steps.values()), left, list(dict.fromkeys(notes))


def cold_starts(steps):
    found = {step["name"]: step for step in steps}
    for model, (title, limit) in COLD_STARTS.items():
        step = found.get(f"cold start {model}")
        passed = step and step["exit_code"] == 0
        yield goal("P6", f"{title}, cold start to 10 epochs done, s", step["seconds"] if passed else None, "<=", limit)


def comparisons(folder):
    paths = [folder / f"compare-{model}.json" for model in COLD_STARTS]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def accuracies(folder):
    """Returns final test accuracies by recipe and seed."""
    found = {}
    for recipe in RECIPES:
        for path in sorted(folder.glob(f"accuracy-{recipe}-*.jsonl")):
            text = path.read_text()
            events = [json.loads(line) for line in text.splitlines()] if text.endswith("\n") else []  # else being written
            if events and events[-1].get("status") == "done":
                last = [event for event in events if event["event"] == "epoch"][-1]
                found.setdefault(recipe, {})[path.stem.rpartition("-")[2]] = last["test_accuracy"]
    return found


def mean_goal(found):
    seeds = found.get("resnet18-pytorch", {})
    mean = statistics.mean(seeds.values()) if len(seeds) == 5 else None
    return goal("P8", "ResNet-18 bf16, test accuracy, mean of 5 seeds", mean, ">=", 0.93)


def make_section(part, folder, torch):
    steps, left, notes = read_record(folder)
    section = dict(facts=read_facts(folder, torch), steps=steps, not_run=left, notes=notes,
                   passed=bool(steps or notes) and not left and all(step["exit_code"] == 0 for step in steps),
                   comparisons=comparisons(folder), accuracies=accuracies(folder))
    section["goals"] = [g for result in section["comparisons"] for g in result["goals"]]
    if part == "compare":
        section["goals"] += cold_starts(steps)
    if part == "accuracy":
        section["goals"] += [mean_goal(section["accuracies"])]
    return section


# ---- the report


def outcome(step):
    if step["cut_off"]:
        return f"cut off after {step['limit']} s"
    return "passed" if step["exit_code"] == 0 else f"exit code {step['exit_code']}"


def escaped(text):
    return text.replace("|", "\\|").replace("`", "'")


def accuracy_table(found):
    seeds = sorted({seed for recipe in found.values() for seed in recipe})

    def means():
        return [f"{statistics.mean(found[recipe].values()):.4f}" for recipe in found]

    rows = [[seed, *(cell(found[recipe].get(seed), ".4f") for recipe in found)] for seed in seeds]
    return markdown(["seed", *found], [*rows, ["mean", *means()]]) if found else []


def section_lines(part, section):
    yield from ["", f"## {part}: {'passed' if section['passed'] else 'FAILED'}", ""]
    yield ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in section["facts"].items())
    yield ""
    yield from markdown(["step", "", "s", "last line", "command"],
                        [[step["name"], outcome(step), f"{step['seconds']:.1f}", escaped(step["last_line"]),
                          f"`{escaped(step['command'])}`"] for step in section["steps"]])
    for step in section["not_run"]:
        yield f"\nnot run: {step['name']} ({step['why']})"
    yield from (f"\n{note}" for note in section["notes"])
    for result in section["comparisons"]:
        check = result["loss_check"]
        yield from ["", f"{result['model']}: a bf16 matrix product runs at {result['peak_tflops']:.0f} TFLOP/s "
                    f"(100 % MFU); {check['what']} {check['difference']:.1e}, limit {check['limit']:g}", ""]
        yield from table(result)
        yield from (f"\n{note}" for note in result["notes"])
    if section["accuracies"]:
        yield from ["", *accuracy_table(section["accuracies"])]
    if section["goals"]:
        yield from ["", *goal_table(section["goals"])]


def write(folder, parts):
    ordered = {part: parts[part] for part in PARTS if part in parts}
    passed = all(section["passed"] for section in ordered.values())
    write_whole(folder / "gpu_check.json", json.dumps(dict(passed=passed, parts=ordered), indent=1) + "\n")
    lines = [f"# lockstep on a GPU: {'passed' if passed else 'FAILED'}"]
    for part, section in ordered.items():
        lines += section_lines(part, section)
    write_whole(folder / "gpu_check.md", "\n".join(lines) + "\n")


def read_parts(folder):
    path = folder / "gpu_check.json"
    return json.loads(path.read_text())["parts"] if path.exists() else {}


def joined(folder, other):
    """Returns the parts of folder's report, and those that only other's has."""
    return read_parts(other) | read_parts(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--torch")
    parser.add_argument("--join", type=Path)
    args = parser.parse_args()
    if args.part:
        parts = read_parts(args.folder)
        parts[args.part] = make_section(args.part, args.record, args.torch)
        passed = parts[args.part]["passed"]
    else:
        parts = joined(args.folder, args.join)
        passed = all(section["passed"] for section in parts.values())
    write(args.folder, parts)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
