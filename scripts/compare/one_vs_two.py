#!/usr/bin/env python3
"""Compares LeNet and ResNet-18 on one device and on two; prints a Markdown table. bench_1_vs_2.sh builds and calls this.

Runs `lockstep bench scaling` once per network. It measures both lists of devices, checks that the replicas agree, and with
--epochs also trains whole runs. Its output goes to standard error, the table to standard output.

Exit codes: 0 all is well, 1 a check has failed, 2 usage, 7 output file; otherwise the code of the command that failed.
"""
import argparse
import json
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from common import add_output_flags, cell, check_outputs, markdown, number_from, write_whole

# The chapters' settings for one device, and published figures of the book's editions: seconds per epoch and test accuracy
# after 10 epochs, on one GPU and on two.
MODELS = [
    dict(model="LeNet", recipe="lenet-scratch", scaling="strong", batch_size=256, lr=0.2,
         published=[dict(framework="PyTorch", one=[3.0, 0.83], two=[2.8, 0.84])]),
    dict(model="ResNet-18", recipe="resnet18-pytorch", scaling="weak", batch_size=256, lr=0.1,
         published=[dict(framework="PyTorch", one=[14.2, 0.89], two=[9.3, 0.81]),
                    dict(framework="MXNet", one=[13.2, 0.93], two=[6.9, 0.91])]),
]
QUICK_BATCH = 4


def gpus(program):
    """Returns the number of GPUs that the program can train on."""
    text = subprocess.run([program, "devices"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return len(re.findall(r"^  cuda:\d+ ", text.split("--devices takes")[0], re.MULTILINE))


def default_lists(program):
    count = gpus(program)
    if count == 0:
        return ["cpu", "cpux2"]
    return ["cuda:0", "cuda:0,cuda:1" if count > 1 else "cuda:0x2"]


def command_for(args, entry, lists, file):
    """Returns the command for one network, and its epochs. On a CPU a step of ResNet-18 takes seconds: three repetitions of
    one step are enough."""
    on_gpu = "cuda" in lists[0]
    short = not on_gpu and entry["model"] == "ResNet-18"
    data = args.data or ("synthetic" if args.quick else None)
    words = [args.lockstep, "bench", "scaling", "--recipe", entry["recipe"], "--scaling", entry["scaling"],
             "--batch-size", str(QUICK_BATCH if args.quick else entry["batch_size"]), "--lr", str(entry["lr"])]
    for devices in lists:
        words += ["--devices", devices]
    if args.repeat or args.quick or short:
        words += ["--repeat", str(args.repeat or 3)]
    if args.quick or short:
        words += ["--iterations", "1"]
    if data:
        words += ["--data", data]
    if args.quick:
        words += ["--limit-train", str(8 * QUICK_BATCH)]
    epochs = args.epochs if args.epochs is not None else 10 if on_gpu and not args.quick else 0
    if epochs:
        words += ["--epochs", str(epochs)]
    return words + ["--json", str(file)], epochs


def measure(args, entry, lists, folder):
    """Measures one network. Returns its entry of the JSON. Exits if the command fails."""
    file = Path(folder) / f"{entry['recipe']}.json"
    command, epochs = command_for(args, entry, lists, file)
    print(f"# {entry['model']}: {shlex.join(['lockstep', *command[1:-2]])}", file=sys.stderr, flush=True)
    code = subprocess.run(command, stdout=sys.stderr).returncode
    if code not in (0, 1) or not file.exists():  # 1: a check has failed; the result says which
        sys.exit(code if code > 0 else 128 - code)
    bench = json.loads(file.read_text())
    rows = bench["tables"][0]["rows"]
    one, two = rows[0], next(row for row in rows if row["replicas"] == 2)
    times = two["replicas"] if entry["scaling"] == "weak" else 1
    return dict(model=entry["model"], recipe=entry["recipe"], setting=entry["scaling"], epochs=epochs,
                batch_size=[one["batch_size"], two["batch_size"]], lr=[entry["lr"], times * entry["lr"]],
                one=one, two=two, speedup=two["speedup"], efficiency=two["efficiency"],
                exposed_sync=two["exposed_sync"], published=entry["published"], checks=bench["checks"],
                ok=bench["ok"], command=shlex.join(["lockstep", *command[1:-2]]), environment=bench["environment"])


def published(result, which):
    return "; ".join("{} {:.1f} s, {:.2f}".format(figures["framework"], *figures[which])
                     for figures in result["published"])


def table_row(result):
    one, two = result["one"], result["two"]
    setting = "{}: batch {}, lr {:g} -> batch {}, lr {:g}".format(
        result["setting"], result["batch_size"][0], result["lr"][0], result["batch_size"][1], result["lr"][1])
    accuracy = "-"
    if result["epochs"]:
        accuracy = "{} -> {} ({} epoch{})".format(cell(one["accuracy"], ".3f"), cell(two["accuracy"], ".3f"),
                                                  result["epochs"], "" if result["epochs"] == 1 else "s")
    return [result["model"], setting, cell(one["seconds_per_epoch"], ".2f"), cell(two["seconds_per_epoch"], ".2f"),
            cell(result["speedup"], ".2f", " x"), cell(result["efficiency"], ".0f", " %"), accuracy,
            published(result, "one"), published(result, "two")]


def machine_lines(environment):
    lines = ["Machine: {cpu}, {cores} cores, {instructions}, {:.1f} GiB memory".format(
        environment["memory_bytes"] / 2**30, **environment)]
    for number, gpu in enumerate(environment["gpus"]):
        lines[0] += "; cuda:{}: {}, {:.0f} GiB".format(number, gpu["name"], gpu["memory_bytes"] / 2**30)
    versions = ", ".join(f"{name} {version}" for name, version in environment["libraries"].items())
    return [lines[0] + ".", "", f"Versions: {versions}. Date: {environment['date']}."]


def page(args, lists, results):
    heads = ["model", "setting", f"`{lists[0]}`, s/epoch", f"`{lists[1]}`, s/epoch", "speed-up", "efficiency",
             "test accuracy", "the chapters', one GPU", "the chapters', two GPUs"]
    lines = [*markdown(heads, map(table_row, results)), "",
             "Speed-up: images per second of two devices over those of one, the median of the ratios within a repetition; "
             "efficiency: half of it. The seconds of an epoch are those of its steps."]
    if args.quick:
        lines += ["", "A quick run on a few images: its times say nothing."]
    failed = [f"{result['model']}, {check['name']}: {check['detail']}"
              for result in results for check in result["checks"] if not check["ok"]]
    count = sum(len(result["checks"]) for result in results)
    lines += ["", f"Checks: {'FAILED: ' + '; '.join(failed) if failed else f'all {count} are OK'}.", ""]
    return "\n".join(lines + machine_lines(results[0]["environment"])) + "\n"


def as_json(lists, results):
    environment = results[0]["environment"]
    models = [{key: value for key, value in result.items() if key != "environment"} for result in results]
    return json.dumps(dict(format="lockstep one vs two", version=1, environment=environment, devices=lists,
                           ok=all(result["ok"] for result in results), models=models), indent=2) + "\n"


def replicas(devices):
    """Returns the number of replicas in a list of devices: cpu, cpux2, cuda:0,cuda:1."""
    times = (re.fullmatch(r"[^x,]+(?:x(\d+))?", part) for part in devices.split(","))
    return sum(int(found[1] or 1) if found else 0 for found in times)


def two_lists(text):
    lists = text.split()
    if [replicas(devices) for devices in lists] != [1, 2]:
        raise argparse.ArgumentTypeError(f"must be one device and two, as in 'cpu cpux2', got {text!r}")
    return lists


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True, metavar="PROGRAM")
    parser.add_argument("--devices", type=two_lists, metavar='"A B"',
                        help="one device and two; default: 'cuda:0 cuda:0,cuda:1', 'cuda:0 cuda:0x2' or 'cpu cpux2'")
    parser.add_argument("--epochs", type=number_from(0), metavar="N",
                        help="epochs of training for the test accuracy; default: 10 on GPUs, 0 on a CPU")
    parser.add_argument("--repeat", type=number_from(3), metavar="N",
                        help="repetitions; default: 5, for ResNet-18 on a CPU 3")
    parser.add_argument("--data", metavar="DIR", help="as for lockstep train")
    add_output_flags(parser)
    parser.add_argument("--quick", action="store_true", help="a few synthetic images: shows that everything works")
    return parser.parse_args()


def main():
    args = parse()
    check_outputs(args)
    lists = args.devices or default_lists(args.lockstep)
    with tempfile.TemporaryDirectory() as folder:
        results = [measure(args, entry, lists, folder) for entry in MODELS]
    text = page(args, lists, results)
    try:
        if args.markdown:
            write_whole(args.markdown, text)
        if args.json:
            write_whole(args.json, as_json(lists, results))
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(7)
    finally:
        print(text, end="", flush=True)
    sys.exit(0 if all(result["ok"] for result in results) else 1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: None)  # ends the running command; this script then returns its exit code
    main()
