#!/usr/bin/env python3
"""The order of an epoch as data/batch_order.h defines it, for the C++ tests. Needs nothing but Python.

    tests/reference/batch_order.py      writes batch_order.txt beside this script

A line each: seed, epoch, rows, SHA-256 of the whole order as 64-bit little-endian numbers, the first up to 8 of them.
"""
import hashlib
import struct
from pathlib import Path

GAMMA = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def mix64(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def batch_order(seed, epoch, rows):
    state = mix64(mix64(seed + GAMMA & MASK) + epoch & MASK)
    order = list(range(rows))
    for i in range(rows - 1, 0, -1):
        state = state + GAMMA & MASK
        j = (mix64(state) >> 32) * (i + 1) >> 32
        order[i], order[j] = order[j], order[i]
    return order


def main():
    lines = []
    for seed in (0, 1, 42, MASK):
        for epoch in (0, 1, 9, 1 << 40):
            for rows in (1, 2, 10, 97, 60000):
                order = batch_order(seed, epoch, rows)
                digest = hashlib.sha256(struct.pack(f"<{rows}q", *order)).hexdigest()
                lines.append(" ".join(map(str, [seed, epoch, rows, digest, *order[:8]])))
    Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
