"""small_data.py DIR: writes a small data set of ten classes there, 64 rows for training and 100 for tests, as plain IDX
files, and the images for tests as floats, X of images.safetensors (100 x 1 x 28 x 28). Needs only Python."""
import array
import json
import struct
import sys
from pathlib import Path

ROWS = dict(train=64, t10k=100)


def pixels(rows):
    """(rows x 28 x 28) bytes: each class is brighter in its own lines. Row r is of class r mod 10."""
    return bytes(i * 7919 % 101 + 120 * (i // 28 % 28 // 3 == i // 784 % 10) for i in range(rows * 784))


def classes(rows):
    return bytes(row % 10 for row in range(rows))


def write(folder, **rows_of):
    for prefix, rows in (ROWS | rows_of).items():
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, rows, 28, 28) + pixels(rows))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, rows) + classes(rows))


def write_floats(path, rows):
    floats = array.array("f", (pixel / 255 for pixel in pixels(rows))).tobytes()
    tensor = dict(dtype="F32", shape=[rows, 1, 28, 28], data_offsets=[0, len(floats)])
    header = json.dumps(dict(X=tensor)).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + floats)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    write_floats(Path(sys.argv[1]) / "images.safetensors", ROWS["t10k"])
