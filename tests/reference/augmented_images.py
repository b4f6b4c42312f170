#!/usr/bin/env python3
"""Augments images as data/images/augmentation.h defines it, for the C++ tests. Needs only Python.

    tests/reference/augmented_images.py           writes augmented_images.txt beside this script
    tests/reference/augmented_images.py --pillow  compares enlarged parts with Pillow's resize, too

Each line has: augmentation, seed, epoch, row, channels, height, width, the part that is shown (top, left, height, width),
1 if it is flipped, SHA-256 of the bytes. Byte p of row r is (r * 31 + p * 7 + p * p // 5) % 256 before.
"""
import hashlib
import sys
from math import isqrt
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/compare"))
from twin.split_mix64 import MASK, below, draws  # noqa: E402

STREAM = 5


def exp24(t):
    p = 2796203 + (t * 699051 >> 24)
    p = 8388608 + (t * p >> 24)
    p = 16777216 + (t * p >> 24)
    return 16777216 + (t * p >> 24)


def view_of(steps, seed, epoch, row, height, width):
    random = draws(seed, STREAM, epoch, row)
    top, left, h, w = 0, 0, height, width
    if "resized-crop" in steps:
        least = max(1, round(float(steps["resized-crop"] or .08) * 65536))
        for _ in range(10):
            area = height * width * (least + below(random, 65536 - least + 1)) >> 16
            t = below(random, 2 * 2413252 + 1) - 2413252
            side = isqrt(area << 16)
            new_w, new_h = side * exp24(t) + 2**31 >> 32, side * exp24(-t) + 2**31 >> 32
            if 1 <= new_w <= width and 1 <= new_h <= height:
                h, w = new_h, new_w
                top = below(random, height - h + 1)
                left = below(random, width - w + 1)
                break
    if "crop" in steps:
        crop = int(steps["crop"])
        top = below(random, 2 * crop + 1) - crop
        left = below(random, 2 * crop + 1) - crop
    flipped = "flip" in steps and below(random, 2) == 1
    black = None
    if "cutout" in steps:
        side = int(steps["cutout"])
        y = below(random, height) - side // 2
        x = below(random, width) - side // 2
        black = range(y, y + side), range(x, x + side)
    return top, left, h, w, flipped, black


def enlarged(line, out):
    """Resizes a line by triangles as wide as a pixel of it, in whole numbers, with weights of 22 bits as Pillow has."""
    result = []
    for o in range(out):
        weights = [max(0, 2 * out - abs((2 * i + 1) * out - (2 * o + 1) * len(line))) for i in range(len(line))]
        total = sum(weights)
        weights = [(2 * (w << 22) + total) // (2 * total) for w in weights]
        result.append(sum(w * p for w, p in zip(weights, line)) + (1 << 21) >> 22)
    return result


def resized(part, height, width):
    lines = [enlarged(line, width) for line in part]
    columns = [enlarged([line[x] for line in lines], height) for x in range(width)]
    return [[column[y] for column in columns] for y in range(height)]


def augmented(plane, view, height, width):
    top, left, h, w, flipped, black = view
    inside = lambda y, x: plane[y][x] if 0 <= y < height and 0 <= x < width else 0  # noqa: E731
    part = [[inside(top + y, left + x) for x in range(w)] for y in range(h)]
    if (h, w) != (height, width):
        part = resized(part, height, width)
    if flipped:
        part = [line[::-1] for line in part]
    if black:
        part = [[0 if y in black[0] and x in black[1] else part[y][x] for x in range(width)] for y in range(height)]
    return part


def planes(row, channels, height, width):
    pixel = lambda p: (row * 31 + p * 7 + p * p // 5) % 256  # noqa: E731
    return [[[pixel((c * height + y) * width + x) for x in range(width)] for y in range(height)] for c in range(channels)]


def line_of(text, seed, epoch, row, channels, height, width):
    steps = dict((part.partition(":")[0], part.partition(":")[2]) for part in text.split(","))
    view = view_of(steps, seed, epoch, row, height, width)
    pixels = bytearray()
    for plane in planes(row, channels, height, width):
        for line in augmented(plane, view, height, width):
            pixels += bytes(line)
    digest = hashlib.sha256(pixels).hexdigest()
    return " ".join(map(str, [text, seed, epoch, row, channels, height, width, *view[:4], int(view[4]), digest]))


TEXTS = ("none", "crop:4", "flip", "crop:4,flip", "cutout:5", "crop:2,flip,cutout:8", "resized-crop",
         "resized-crop:.25,flip", "resized-crop:1", "resized-crop:.5,flip,cutout:3", "crop:40")


def compare_with_pillow():
    from PIL import Image
    most, pixels, other = 0, 0, 0
    for seed in range(200):
        height, width = 24 + seed % 17, 20 + seed % 23
        top, left, h, w, _, _ = view_of({"resized-crop": ""}, seed, 0, 0, height, width)
        plane = planes(seed, 1, height, width)[0]
        own = resized([line[left:left + w] for line in plane[top:top + h]], height, width)
        image = Image.frombytes("L", (width, height), bytes(p for line in plane for p in line))
        image = image.crop((left, top, left + w, top + h)).resize((width, height), Image.Resampling.BILINEAR)
        found = list(image.tobytes())
        differences = [abs(a - b) for a, b in zip((p for line in own for p in line), found)]
        most, pixels, other = max(most, *differences), pixels + len(found), other + sum(d > 0 for d in differences)
    print(f"{other} of {pixels} pixels differ from Pillow's, by {most} at most")


def main():
    if "--pillow" in sys.argv:
        compare_with_pillow()
        return
    lines = []
    for text in TEXTS:
        for seed, epoch, row in ((0, 0, 0), (1, 0, 1), (1, 1, 1), (42, 9, 59999), (MASK, 1 << 40, 1 << 33)):
            for shape in ((3, 32, 32), (1, 28, 28), (3, 7, 12)):
                lines.append(line_of(text, seed, epoch, row, *shape))
    Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
