"""The same images written as every kind of data set give the same weights. Usage: every_kind.py LOCKSTEP

Files are written here by Python's standard library alone. Grey images of 28 x 28 pixels: IDX files, safetensors, class
folders of PNG files (resident and streamed). Colour ones of 32 x 32: CIFAR-10's binary files, safetensors, PNG files.
"""

import gzip
import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import zlib

CLASSES = 10
ROWS = {"train": 83, "test": 20}  # a prime number: the last batch is smaller
NAMES = [f"class{label}" for label in range(CLASSES)]  # their order is that of the labels


def drawn(channels, side):
    """{part: (labels, images)}, an image being its bytes, channel after channel. Every class has images."""
    source = random.Random(channels)
    return {part: ([row % CLASSES for row in range(rows)],
                   [source.randbytes(channels * side * side) for _ in range(rows)]) for part, rows in ROWS.items()}


def png(pixels, channels, side):
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    plane = side * side
    lines = b"".join(b"\0" + bytes(pixels[c * plane + y * side + x] for x in range(side) for c in range(channels))
                     for y in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 0 if channels == 1 else 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def write_folders(folder, parts, channels, side):
    for part, (labels, images) in parts.items():
        for row, (label, image) in enumerate(zip(labels, images)):
            path = folder / part / NAMES[label] / f"{row:05}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(image, channels, side))


def write_safetensors(path, parts, channels, side):
    header, content = {}, b""
    for part, (labels, images) in parts.items():
        for name, dtype, shape, values in (
                ("X", "U8", [len(images), channels, side, side], b"".join(images)),
                ("y", "I64", [len(labels)], struct.pack(f"<{len(labels)}q", *labels))):
            offsets = [len(content), len(content) + len(values)]
            header[f"{part}.{name}"] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
            content += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)


def write_idx(folder, parts, side):
    folder.mkdir()
    for part, (labels, images) in parts.items():
        prefix = "train" if part == "train" else "t10k"
        with gzip.open(folder / f"{prefix}-images-idx3-ubyte.gz", "wb") as file:
            file.write(struct.pack(">IIII", 0x803, len(images), side, side) + b"".join(images))
        with gzip.open(folder / f"{prefix}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(struct.pack(">II", 0x801, len(labels)) + bytes(labels))


def write_cifar(folder, parts):
    folder.mkdir()
    (folder / "batches.meta.txt").write_text("".join(f"{name}\n" for name in NAMES))
    records = {part: [bytes([label]) + image for label, image in zip(*rows)] for part, rows in parts.items()}
    size = (len(records["train"]) + 4) // 5
    for batch in range(5):
        (folder / f"data_batch_{batch + 1}.bin").write_bytes(b"".join(records["train"][batch * size:(batch + 1) * size]))
    (folder / "test_batch.bin").write_bytes(b"".join(records["test"]))


def weights(program, data, *flags):
    """The hash of the weights after two epochs, and the test losses."""
    command = [program, "train", "--data", str(data), "--devices", "cpux2", "--threads", "1", "--batch-size", "16",
               "--epochs", "2", "--lr", "0.02", "--print-weights-hash", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    found = re.findall(r"test loss ([0-9.]+)", done.stdout)
    return re.search(r"weights[^\n]*?([0-9a-f]{16,})", done.stdout)[1], tuple(found)


def main():
    program, failures = sys.argv[1], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        grey, colour = drawn(1, 28), drawn(3, 32)
        write_idx(folder / "idx", grey, 28)
        write_safetensors(folder / "grey.safetensors", grey, 1, 28)
        write_folders(folder / "grey", grey, 1, 28)
        write_cifar(folder / "cifar", colour)
        write_safetensors(folder / "colour.safetensors", colour, 3, 32)
        write_folders(folder / "colour", colour, 3, 32)
        streamed = ("--data-memory", "20K", "--workers", "2")
        changed = ("--augment", "crop:4,flip", "--normalize", "0.5,0.4,0.3:0.2,0.2,0.3")
        for kinds in ([("idx",), ("grey.safetensors",), ("grey",), ("grey", *streamed)],
                      [("cifar",), ("colour.safetensors",), ("colour",), ("colour", *streamed)],
                      [("cifar", *changed), ("colour.safetensors", *changed), ("colour", *streamed, *changed)]):
            results = {kind: weights(program, folder / kind[0], *kind[1:]) for kind in kinds}
            if len(set(results.values())) != 1:
                failures.append(results)
            for kind, result in results.items():
                print(*kind, *result)
    if failures:
        sys.exit(f"kinds of data differ: {failures}")


main()
