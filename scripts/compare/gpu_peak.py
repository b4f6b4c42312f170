#!/usr/bin/env python3
"""Measures a large bfloat16 matrix product on a device and prints {"tflops": ...}. The MFU of a step refers to it."""
import argparse
import json
import statistics
import time

import torch

WARMUP, TIMED = 3, 10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--size", type=int, default=8192)
    args = parser.parse_args()
    device = torch.device(args.device)
    # Random values: zeros take less power, so the clock would be higher.
    a, b = (torch.randn(args.size, args.size, dtype=torch.bfloat16, device=device) for _ in range(2))
    seconds = []
    for _ in range(WARMUP + TIMED):
        start = time.perf_counter()
        a @ b
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds[WARMUP:])
    print(json.dumps(dict(tflops=2 * args.size**3 / median / 1e12, size=args.size, device=args.device)))


if __name__ == "__main__":
    main()
