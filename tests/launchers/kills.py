"""kills.py alone|launch|sharded PROGRAM [KILLS] [SEED]: a run that writes a checkpoint after every step is killed with
SIGKILL again and again, at random moments: while it starts, trains and saves. What it ends with must be what the run
without kills ends with: the same weights and metrics, each step once and in order, and no temporary file.
alone: one process with two replicas, started again by this test. launch: two processes under `PROGRAM launch
--max-restarts`, a random one is killed; nobody else starts anything again. sharded: the same with --shard gradients.
LOCKSTEP_KILLS of the environment overrides KILLS. The kills are spread over runs of at most 50."""

import json
import os
import random
import re
import signal
import sys
import time

from processes import PATIENCE, Running, fail, marked, process_with, run_test, started, until
from training import SIZES, printed_hash, temporary_files

KILLS = 10
MOST_KILLS = 50  # of one run
STEPS_PER_EPOCH = 5
STARTING = 4  # one kill of so many comes while the run starts
BEHIND = 2  # the other ones come at most so many steps behind a step
COMMON = ["--log-every", "1", "--momentum", ".9", "--print-weights-hash", "--timeout", "60"]
STEP = r"^epoch +(\d+)(?:/\d+)? \| step +(\d+)(?:/\d+)? \| loss "
# The fields of a metrics line that depend on the clock.
TIMES = {"step_ms", "images_per_second", "resident_bytes", "data_ms", "compute_ms", "sync_ms", "update_ms",
         "train_seconds", "test_seconds", "seconds_per_epoch", "peak_resident_bytes", "memory_estimate_bytes", "date",
         "command"}


def timeless(value):
    if not isinstance(value, dict):
        return value
    return {key: timeless(part) for key, part in value.items() if key not in TIMES}


def steps_in(out):
    return [(int(epoch) - 1) * STEPS_PER_EPOCH + int(step)
            for epoch, step in re.findall(STEP, out, re.M)]


class Run:
    """One training that is killed. whole(): the same without kills."""

    def __init__(self, way, program, folder, epochs):
        self.way, self.program, self.folder, self.epochs = way, program, folder, epochs

    def words(self, restarts=0):
        train = [*SIZES, *COMMON, "--epochs", self.epochs, "--output", self.folder, "--checkpoint-every", "1"]
        if self.way == "sharded":
            train += ["--shard", "gradients", "--ema", ".9"]
        if self.way != "alone":
            return [self.program, "launch", "-n", 2, "--max-restarts", restarts, "--", *train, "--devices", "cpu"]
        return [self.program, *train, "--devices", "cpux2", "--resume", "auto"]

    def whole(self):
        """Also finds out how long a start and a step take."""
        begin = time.monotonic()
        running = Running(self.words())
        running.wait_for(STEP)
        first = time.monotonic()
        out = running.end()
        if steps_in(out) != self.steps():
            fail("the run without kills has not printed every step")
        seconds = (first - begin, (time.monotonic() - first) / len(self.steps()))
        return *self.result(out), seconds

    def steps(self):
        return list(range(1, self.epochs * STEPS_PER_EPOCH + 1))

    def result(self, out):
        """The hash that it has printed, and the metrics of its folder."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return printed_hash(out), [timeless(json.loads(line)) for line in lines]

    def check(self, out, whole):
        weights, metrics = self.result(out)
        if left := temporary_files(self.folder):
            fail(f"left behind: {left}")
        steps = [(line["epoch"] - 1) * STEPS_PER_EPOCH + line["step"] for line in metrics if line["event"] == "step"]
        if steps != self.steps():
            fail(f"steps of the metrics: missing {set(self.steps()) - set(steps)}, all of them: {steps}")
        for found, line in zip(metrics, whole[1]):
            if found != line:
                fail(f"a line of the metrics is\n{found}\nwithout kills it is\n{line}")
        if len(metrics) != len(whole[1]):
            fail(f"{len(metrics)} lines of metrics, {len(whole[1])} without kills")
        if weights != whole[0]:
            fail(f"the weights are {weights}, without kills {whole[0]}")


def wait(running, known, step, seconds):
    """Waits until this step is in the output behind its first `known` characters, but no longer than this."""
    out = running.out
    with out.changed:
        return out.changed.wait_for(
            lambda: out.closed or any(done >= step for done in steps_in(out.text[known:])), seconds)


class Killer:
    """Waits for a random moment of each life of the run, and kills. It never waits long enough for the run to end."""

    def __init__(self, run, chance, kills, seconds):
        self.run, self.chance, self.kills = run, chance, kills
        self.start_seconds, self.step_seconds = seconds
        self.saving = self.starting = 0

    def wait_for_moment(self, running, life, known):
        """life: of the run, from 0. known: characters of its output that belong to earlier lives."""
        if self.chance.randrange(STARTING) == 0:
            self.starting += 1
            wait(running, known, 1, self.chance.uniform(0, self.start_seconds))
            return
        step = self.chance.randint(life * STEPS_PER_EPOCH, (life + 1) * STEPS_PER_EPOCH) + 1
        if not wait(running, known, step, PATIENCE):
            fail(f"step {step} does not come in life {life}")
        wait(running, known, step + BEHIND, self.chance.uniform(0, BEHIND * self.step_seconds))

    def note_save(self):
        self.saving += bool(temporary_files(self.run.folder))

    def kill_alone(self):
        for life in range(self.kills):
            running = Running(self.run.words())
            self.wait_for_moment(running, life, 0)
            running.process.kill()
            running.end(-signal.SIGKILL)
            self.note_save()
            started.remove(running)
        return Running(self.run.words()).end()

    def kill_launched(self):
        launch = Running(self.run.words(self.kills))
        for life in range(self.kills):
            rank = self.chance.randrange(2)
            marks = [f"RANK={rank}", f"TORCHELASTIC_RESTART_COUNT={life}"]
            until(lambda: marked(*marks) or launch.out.closed, f"a process {rank} of life {life}")
            self.wait_for_moment(launch, life, len(launch.out.text))
            os.kill(process_with(*marks), signal.SIGKILL)
            until(lambda: not marked(*marks), f"killed in life {life}")
            self.note_save()
        out = launch.end()
        restarts = len(re.findall(r"\(restart \d+ of", launch.err.text))
        if restarts != self.kills:
            fail(f"{self.kills} kills, but {restarts} restarts")
        return out


def kills(scratch, way, program, count=KILLS, seed=1):
    left = int(os.environ.get("LOCKSTEP_KILLS") or count)
    known = {}  # runs without kills, by number of epochs
    for number in range(-(-left // MOST_KILLS)):
        now = min(left, MOST_KILLS)
        left -= now
        epochs = now + 2  # one for each kill, which comes at most two steps behind it
        if epochs not in known:
            known[epochs] = Run(way, program, scratch / f"whole-{epochs}", epochs).whole()
        run = Run(way, program, scratch / f"run-{number}", epochs)
        killer = Killer(run, random.Random(f"{seed} {number}"), now, known[epochs][2])
        begin = time.monotonic()
        out = killer.kill_alone() if way == "alone" else killer.kill_launched()
        run.check(out, known[epochs])
        started.clear()
        print(f"{way}, run {number}: {now} kills, {killer.starting} of them at the start, {killer.saving} during a "
              f"save: {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    run_test(kills, *sys.argv[1:])
