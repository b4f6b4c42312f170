#!/usr/bin/env python3
"""What each of the 256 values of a pixel becomes as a network's input, for the C++ tests. Needs nothing but Python.

    tests/reference/pixel_values.py      writes pixel_values.json beside this script

The bits of the float nearest to value / 255, for 0 to 255: torchvision's ToTensor divides floats, which rounds correctly.
(Rounding the double quotient again is exact enough: a double has more than twice a float's digits.)
"""
import json
import struct
from pathlib import Path

bits = [struct.unpack("<I", struct.pack("<f", value / 255))[0] for value in range(256)]
Path(__file__).with_suffix(".json").write_text(json.dumps(bits) + "\n")
