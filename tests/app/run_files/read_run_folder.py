"""read_run_folder.py PROGRAM: what TensorBoard and Python's csv read in a run's folder is in its metrics.jsonl."""

import csv
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

STEPS_PER_EPOCH = 5
STEP_TAGS = {"train/loss": "loss", "train/top1": "top1", "train/top5": "top5", "lr": "lr",
             "images_per_second": "images_per_second"}
EPOCH_TAGS = {"test/loss": "test_loss", "test/accuracy": "test_accuracy", "test/top5": "test_top5"}


def single(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def train(folder, *words):
    subprocess.run([sys.argv[1], "train", "--data", "synthetic", "--limit-train", "640", "--batch-size", "128",
                    "--threads", "1", "--devices", "cpu", "--limit-test", "64", "--epochs", "3", "--log-every", "2",
                    "--output", str(folder), *words], check=True, stdout=subprocess.DEVNULL)


def check_tensorboard(folder, events):
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    assert sorted(accumulator.Tags()["scalars"]) == sorted([*STEP_TAGS, *EPOCH_TAGS]), accumulator.Tags()
    for tags, name in ((STEP_TAGS, "step"), (EPOCH_TAGS, "epoch")):
        for tag, key in tags.items():
            expected = [
                ((event["epoch"] - 1) * STEPS_PER_EPOCH + event.get("step", STEPS_PER_EPOCH), single(event[key]))
                for event in events if event["event"] == name]
            found = [(scalar.step, scalar.value) for scalar in accumulator.Scalars(tag)]
            assert len(found) >= 3 and found == expected, (tag, found, expected)


def check_csv(folder, events):
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [event for event in events if event["event"] in ("step", "epoch")]
    assert len(rows) == len(expected)
    for row, event in zip(rows, expected):
        found = {key: text if key == "event" else float(text) for key, text in row.items() if text}
        assert found == event, (found, event)


with tempfile.TemporaryDirectory() as work:
    run = Path(work) / "run"
    train(run, "--limit-steps", "7")
    train(run, "--resume", "auto")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    check_tensorboard(run, lines)
    check_csv(run, lines)
