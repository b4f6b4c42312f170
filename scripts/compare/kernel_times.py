#!/usr/bin/env python3
"""Sums up a trace of compare_case: microseconds and launches per step, by group of kernels and by kernel, how long the
GPU waits between them, and how many are short. Prints the tables, then one line with the totals.

    kernel_times.py TRACE --steps N [--top N]

Exit codes: 0 all is well, 1 the trace has no kernels, 2 usage. Needs only Python.
"""
import argparse
import collections
import json
import re
import sys
from pathlib import Path

CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
# The first pattern that is found in a kernel's name, in any case, decides.
GROUPS = [("convolution", r"conv|xmma|cutlass|cudnn|sm90_|sm80_|wgrad|dgrad|fprop|winograd|cask"),
          ("lockstep's batch norm", r"batch_norm_"),
          ("lockstep's SGD, gradients and gather", r"flat_sgd|flat_fill|gather_images"),
          ("lockstep's loss and sums", r"class_loss|number_sums"),
          ("matmul", r"gemm|cublas|splitk"),
          ("softmax, loss", r"softmax|nll"),
          ("reduction", r"reduce"),
          ("pooling", r"pool"),
          ("copy, fill", r"copy|memcpy|memset|fill|cat"),
          ("elementwise", r"elementwise|vectorized")]
SHORT = 5.0  # microseconds


def group_of(name):
    return next((group for group, pattern in GROUPS if re.search(pattern, name, re.IGNORECASE)), "other")


def short_name(name):
    """Returns a kernel's name without its arguments; of torch's elementwise kernels, with their functor."""
    name = re.sub(r"^void ", "", name)
    base = re.sub(r"[<(].*", "", name)
    functor = re.search(r"(?:native::)?(\w*(?:Functor|_kernel_cuda|kernel_impl)\w*)", name)
    return f"{base} [{functor[1]}]" if functor and functor[1] not in base else base


def kernels(path):
    """Returns the kernels and copies of a trace, in order of their start."""
    events = json.loads(path.read_text(errors="replace"))["traceEvents"]
    found = [event for event in events if event.get("ph") == "X" and event.get("cat") in CATEGORIES]
    return sorted(found, key=lambda event: event["ts"])


def gaps_between(events):
    """Returns (microseconds in which at least one kernel runs, the gaps in which none does)."""
    busy, end, gaps = 0.0, events[0]["ts"], []
    for event in events:
        start, stop = event["ts"], event["ts"] + event["dur"]
        if start > end:
            gaps.append(start - end)
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return busy, gaps


def sums(events, key):
    """Returns (key, microseconds, count), longest first."""
    found = collections.defaultdict(lambda: [0.0, 0])
    for event in events:
        entry = found[key(event["name"])]
        entry[0] += event["dur"]
        entry[1] += 1
    return sorted(((name, us, count) for name, (us, count) in found.items()), key=lambda row: -row[1])


def table(rows, steps):
    yield f"{'us/step':>9} {'n/step':>7} {'us each':>8}"
    for name, us, count in rows:
        yield f"{us / steps:9.1f} {count / steps:7.1f} {us / count:8.2f}  {name[:110]}"


def totals(events, steps):
    busy, gaps = gaps_between(events)
    brief = [event["dur"] for event in events if event["dur"] < SHORT]
    return (f"per step: {len(events) / steps:.1f} kernels and copies in {(busy + sum(gaps)) / steps:.1f} us, "
            f"GPU busy {busy / steps:.1f} us, {len(gaps) / steps:.1f} gaps of {sum(gaps) / steps:.1f} us; "
            f"{len(brief) / steps:.1f} of them below {SHORT:g} us, {sum(brief) / steps:.1f} us")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--steps", type=int, required=True, help="steps in the trace")
    parser.add_argument("--top", type=int, default=45, help="kernels in the table; default: 45")
    args = parser.parse_args()
    events = kernels(args.trace)
    if not events:
        sys.exit(f"error: {args.trace} has no kernels")
    for rows in (sums(events, group_of), sums(events, short_name)[:args.top]):
        print("\n".join(table(rows, args.steps)))
    print(totals(events, args.steps))


if __name__ == "__main__":
    main()
