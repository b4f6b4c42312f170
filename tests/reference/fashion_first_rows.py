#!/usr/bin/env python3
"""Writes the first rows of Fashion-MNIST, read with Python's gzip, for the C++ tests. Needs only the data.

    tests/reference/fashion_first_rows.py [FOLDER]      writes fashion_first_rows.json beside this script

    {"train": {"rows": 60000, "pixel_sums": sums of the 784 bytes of the first 3 images, "labels": their labels},
     "test": the same of the t10k files}
"""
import gzip
import json
import sys
from pathlib import Path

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "/usr/share/datasets/fashion-mnist")


def first_rows(prefix, count=3):
    images = gzip.decompress((folder / f"{prefix}-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((folder / f"{prefix}-labels-idx1-ubyte.gz").read_bytes())[8:]
    sums = [sum(images[784 * row:784 * (row + 1)]) for row in range(count)]
    return dict(rows=len(labels), pixel_sums=sums, labels=list(labels[:count]))


content = dict(train=first_rows("train"), test=first_rows("t10k"))
Path(__file__).with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
