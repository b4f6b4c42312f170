#!/usr/bin/env python3
"""Computes a network's input for each of the 256 values of a pixel, for the C++ tests. Needs only Python.

    tests/reference/pixel_values.py      writes pixel_values.json beside this script

The bits of the float nearest to value / 255, for 0 to 255: torchvision's ToTensor divides floats, which rounds correctly.
(Rounding the double quotient gives the same: a double has more than twice the digits of a float.)
"""
import json
import struct
from pathlib import Path

bits = [struct.unpack("<I", struct.pack("<f", value / 255))[0] for value in range(256)]
Path(__file__).with_suffix(".json").write_text(json.dumps(bits) + "\n")
