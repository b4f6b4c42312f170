#!/usr/bin/env python3
"""Resizes and crops rows of bytes with torchvision, for the C++ tests. Needs torchvision and Pillow.

    tests/reference/resized_rows.py      writes resized_rows.json beside this script

Each entry has the shape of two rows, the size, and the pixels of both rows in hexadecimal digits, (channels, size, size):
those of torchvision's Resize(size) and CenterCrop(size) of each channel as an image of Pillow. Byte p of row r is
(r * 31 + p * 7 + p * p // 5) % 256 before. torchvision 0.29.2 with Pillow 13.0.0 has written the file.
"""
import json
from pathlib import Path

import numpy as np
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, Resize

CASES = [(1, 28, 28, 32), (1, 28, 28, 20), (3, 32, 32, 24), (3, 32, 32, 40), (1, 30, 20, 16), (2, 12, 17, 9), (4, 7, 5, 8)]


def bytes_of(row, count):
    return [(row * 31 + p * 7 + p * p // 5) % 256 for p in range(count)]


def resized(row, channels, height, width, size):
    planes = np.array(bytes_of(row, channels * height * width), np.uint8).reshape(channels, height, width)
    change = Compose([Resize(size), CenterCrop(size)])
    return b"".join(change(Image.fromarray(plane)).tobytes() for plane in planes)


def main():
    entries = []
    for channels, height, width, size in CASES:
        pixels = b"".join(resized(row, channels, height, width, size) for row in range(2))
        entries.append({"shape": [channels, height, width], "size": size, "pixels": pixels.hex()})
    text = ",\n".join(json.dumps(entry) for entry in entries)
    Path(__file__).with_suffix(".json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
