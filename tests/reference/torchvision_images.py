#!/usr/bin/env python3
"""Applies the draws of lockstep's augmentation with torchvision, for the C++ tests. Needs torchvision and Pillow.

    tests/reference/torchvision_images.py     writes torchvision_images.json beside this script

Each entry has the augmentation, seed, epoch, row and shape, and the pixels in hexadecimal digits, (channels, height, width).
The draws are those of augmented_images.py, the bytes before are its, too. pad(), crop(), hflip() and resized_crop() of
torchvision.transforms.functional change each channel as an image of Pillow. torchvision 0.29.2 with Pillow 13.0.0 has
written the file.
"""
import json
from pathlib import Path

import numpy as np
from augmented_images import planes, view_of
from PIL import Image
from torchvision.transforms import functional

TEXTS = ("crop:4", "flip", "crop:4,flip", "crop:9", "resized-crop", "resized-crop:.5,flip", "resized-crop:1")
DRAWS = ((0, 0, 0), (1, 2, 7), (42, 9, 59999))
SHAPES = ((3, 12, 12), (1, 28, 28), (1, 7, 12))


def changed(plane, steps, view):
    top, left, height, width, flipped, _ = view
    image = Image.fromarray(np.array(plane, np.uint8))
    size = [image.height, image.width]
    if "crop" in steps:
        margin = int(steps["crop"])
        image = functional.crop(functional.pad(image, [margin] * 4), top + margin, left + margin, *size)
    if "resized-crop" in steps:
        image = functional.resized_crop(image, top, left, height, width, size)
    return functional.hflip(image) if flipped else image


def entry_of(text, seed, epoch, row, shape):
    steps = dict((part.partition(":")[0], part.partition(":")[2]) for part in text.split(","))
    view = view_of(steps, seed, epoch, row, *shape[1:])
    pixels = b"".join(changed(plane, steps, view).tobytes() for plane in planes(row, *shape))
    return {"augmentation": text, "seed": seed, "epoch": epoch, "row": row, "shape": shape, "pixels": pixels.hex()}


def main():
    entries = [entry_of(text, *draws, shape) for text in TEXTS for draws in DRAWS for shape in SHAPES]
    text = ",\n".join(json.dumps(entry) for entry in entries)
    Path(__file__).with_suffix(".json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
