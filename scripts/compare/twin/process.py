"""A Python process of a comparison has these: one core, a process group, answers to lines on stdin."""
import datetime
import json
import os
import sys

import torch.distributed as dist

# Ranks wait for each other while one loads data or waits for a busy core; this is longer.
RANK_TIMEOUT = datetime.timedelta(minutes=10)


def keep_to_core(rank):
    """Call this before torch starts threads: they inherit the core."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def join_process_group(backend, store, rank, world):
    """store: a path, the same for all ranks; the file must not exist yet."""
    os.environ.setdefault(f"{backend.upper()}_SOCKET_IFNAME", "lo")  # all ranks are on this machine
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=world, timeout=RANK_TIMEOUT)


def answer_lines(known, verbs):
    """Prints `ready {...}`, then answers each line `verb N` on stdin with one line of JSON until stdin ends."""
    print("ready", json.dumps(known), flush=True)
    for line in sys.stdin:
        verb, _, number = line.partition(" ")
        print(json.dumps(verbs[verb](int(number))), flush=True)
