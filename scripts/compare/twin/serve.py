"""The Python case of a comparison: eager, compiled, or one rank of DistributedDataParallel.

Prints `ready {...}` once warm, or `skip {...}` where this machine cannot run it. Then answers each line on stdin with
one line of JSON:
    run N    takes N steps: their seconds, the seconds of their parts, and the mean loss
    host N   takes N steps, each while the device is idle: the median seconds of a step's Python
"""
import contextlib
import json
import os
import platform
import statistics
import sys
import time

import torch

from twin.process import answer_lines, join_process_group
from twin.training import Training

COMPILE_MODES = ["default", "max-autotune"]
TRIAL_STEPS = 3  # per mode of torch.compile; the fastest step counts


def join_ranks(run, store):
    """Makes `run` one of several processes that average their gradients during the backward pass."""
    join_process_group("nccl" if run.device.type == "cuda" else "gloo", store, run.rank, run.world)
    # The settings for speed: gradients live in the buckets, each replica keeps its own statistics (as in lockstep), and
    # the graph never changes.
    run.loss_sum_of = torch.nn.parallel.DistributedDataParallel(
        run.twin, gradient_as_bucket_view=True, broadcast_buffers=False, static_graph=True)
    if run.args.shard:
        run.twin.shard()


@contextlib.contextmanager
def silent():
    """Drops what torch.compile prints on stderr. It reports failures as exceptions."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def compile_fastest(run, modes, take_step):
    """Sets `run` to the fastest mode of torch.compile and restores the weights. Returns the mode and the trials' times.

    The last batch of an epoch stays eager: its size differs, so it would need another compilation.
    """
    import torch._inductor.config
    if run.device.type == "cpu":
        torch._inductor.config.compile_threads = 1  # no helper processes that would stay
    start = {name: tensor.clone() for name, tensor in run.twin.state_dict().items()}
    found = {}
    for mode in modes:
        compiled = torch.compile(run.twin, mode=mode, dynamic=False)
        run.loss_sum_of = compiled
        take_step()  # compiles
        seconds = []
        for _ in range(TRIAL_STEPS):
            begin = time.perf_counter()
            take_step()
            run.synchronize()
            seconds.append(time.perf_counter() - begin)
        found[mode] = min(seconds), compiled
        run.twin.load_state_dict(start)
    mode = min(found, key=lambda name: found[name][0])
    compiled = found[mode][1]
    run.loss_sum_of = lambda X, y: compiled(X, y) if len(y) == run.args.batch_size else run.twin(X, y)
    run.take_loss()  # forgets the trials
    return dict(compile_mode=mode, trial_ms={name: round(1e3 * seconds, 2) for name, (seconds, _) in found.items()})


class Steps:
    def __init__(self, args):
        self.args = args
        self.run = Training(args, args.rank, args.world)
        # Without the last, smaller batch all steps are the same work.
        self.batches = [batch for batch in self.run.batches(0)
                        if args.last_batch == "keep" or len(batch) == args.batch_size]
        self.done = 0

    def warm_up(self):
        """Warms up and returns what the `ready` line says."""
        known = dict(torch=torch.__version__, python=platform.python_version())
        if self.args.store:
            join_ranks(self.run, self.args.store)
        if self.args.compile:
            modes = COMPILE_MODES if self.args.compile == "fastest" else [self.args.compile]
            with silent():
                known |= compile_fastest(self.run, modes, lambda: self.run.step(self.batches[0], self.args.lr))
        return known | dict(warmup=self.take(self.args.warmup))

    def step(self):
        taken = self.run.step(self.batches[self.done % len(self.batches)], self.args.lr)
        self.done += 1
        return taken

    def host(self, count):
        seconds = []
        for _ in range(count):
            self.run.synchronize()
            start = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - start)
        self.run.take_loss()  # forgets them
        return dict(seconds=statistics.median(seconds))

    def take(self, count):
        start = time.perf_counter()
        phases = [0.0, 0.0, 0.0]
        for _ in range(count):
            phases = [p + t for p, t in zip(phases, self.step())]
        mean, _ = self.run.take_loss()  # inside the clock, as for a step line
        seconds = time.perf_counter() - start
        # From outside, DistributedDataParallel's exposed sync cannot be told from its backward pass.
        sync = None if self.args.store else 0.0
        return dict(seconds=seconds, data=phases[0], compute=phases[1], sync=sync, update=phases[2], loss=mean)


def serve(args):
    steps = Steps(args)
    try:
        known = steps.warm_up()
    except Exception as error:
        if not args.compile:
            raise
        # No compiler, no Python.h, or an unknown operator: the comparison goes on without this case.
        why = str(error).strip().splitlines() or [type(error).__name__]
        print("skip", json.dumps(dict(why=why[0])), flush=True)
        return
    answer_lines(known, dict(run=steps.take, host=steps.host))
