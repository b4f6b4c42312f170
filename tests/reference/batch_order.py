#!/usr/bin/env python3
"""Computes the order of epochs as data/batch_order.h defines it, for the C++ tests. Needs only Python.

    tests/reference/batch_order.py      writes batch_order.txt beside this script

Each line has: seed, epoch, rows, SHA-256 of the whole order as 64-bit little-endian numbers, the first 8 of them at most.
"""
import hashlib
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/compare"))
from twin.split_mix64 import MASK, batch_order  # noqa: E402


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
