"""A process of the Python side in comparisons: the core it keeps to, the group it joins, the lines it speaks."""
import datetime
import json
import os
import sys

import torch.distributed as dist

# Longer than ranks wait for each other: while one loads its data, or waits for a core on a machine that is not quiet.
RANK_TIMEOUT = datetime.timedelta(minutes=10)


def keep_to_core(rank):
    """To be called before torch starts threads, which then keep to it too."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def join_process_group(backend, store, rank, world):
    """store: a path where no file is yet, the same for all ranks."""
    os.environ.setdefault(f"{backend.upper()}_SOCKET_IFNAME", "lo")  # all ranks are on this machine
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=world, timeout=RANK_TIMEOUT)


def answer_lines(known, verbs):
    """Prints `ready {...}`, and then answers each line `verb N` on stdin, until its end, with one line of JSON."""
    print("ready", json.dumps(known), flush=True)
    for line in sys.stdin:
        verb, _, number = line.partition(" ")
        print(json.dumps(verbs[verb](int(number))), flush=True)
