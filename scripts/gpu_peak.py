#!/usr/bin/env python3
"""What a device makes of a large matrix product in bfloat16: prints {"tflops": ...}. A step is held against it (MFU)."""
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
    # Random: of zeros, which take less power, the clock makes more.
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
