#!/usr/bin/env python3
"""Makes synthetic images as data/synthetic.cpp does, for the C++ tests. Needs only Python.

    tests/reference/synthetic.py      writes synthetic.json beside this script

[{"seed", "set", "rows", "images": SHA-256 of the pixels of these rows, "labels": their labels}, ...]
"""
import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/compare"))
from twin.split_mix64 import MASK, below, draws  # noqa: E402

SIDE, SHIFT, CLASSES = 28, 3, 10
PADDED = SIDE + 2 * SHIFT
PROTOTYPES, STREAMS = 0, {"train": 1, "test": 2}


def prototype(seed, label):
    random = draws(seed, PROTOTYPES, label)
    pixels = [[0] * PADDED for _ in range(PADDED)]
    for _ in range(1 + label):
        cy = SHIFT + 4 + below(random, SIDE - 8)
        cx = SHIFT + 4 + below(random, SIDE - 8)
        radius = 4 + below(random, 5)
        height = 192 + below(random, 64)
        for y in range(PADDED):
            for x in range(PADDED):
                inside = radius ** 2 - (y - cy) ** 2 - (x - cx) ** 2
                if inside > 0:
                    pixels[y][x] += height * inside // radius ** 2
    return [[min(255, pixel) for pixel in line] for line in pixels]


def image(seed, stream, row, prototypes):
    random = draws(seed, stream, row)
    label, other = below(random, CLASSES), below(random, CLASSES)
    weight = 112 + below(random, 145)
    shifts = [below(random, 2 * SHIFT + 1) for _ in range(4)]  # y, x of the class's prototype, y, x of the other one
    pixels = bytearray()
    for y in range(SIDE):
        for x in range(SIDE):
            if x % 8 == 0:
                noise = next(random)
            own = prototypes[label][shifts[0] + y][shifts[1] + x]
            far = prototypes[other][shifts[2] + y][shifts[3] + x]
            signal = (weight * own + (256 - weight) * far) // 256
            pixels.append(max(0, min(255, signal + (noise & 255) // 2 - 64)))
            noise >>= 8
    return pixels, label


def main():
    content = []
    for seed in (0, 7, MASK):
        prototypes = [prototype(seed, label) for label in range(CLASSES)]
        for name, rows in (("train", 24), ("test", 8)):
            made = [image(seed, STREAMS[name], row, prototypes) for row in range(rows)]
            digest = hashlib.sha256(b"".join(bytes(pixels) for pixels, _ in made)).hexdigest()
            content.append(dict(seed=seed, set=name, rows=rows, images=digest, labels=[label for _, label in made]))
    Path(__file__).with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
