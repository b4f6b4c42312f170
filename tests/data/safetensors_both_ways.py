#!/usr/bin/env python3
"""Writes safetensors files for lockstep to read and save again, and compares the results. Needs safetensors and numpy.

    safetensors_both_ways.py write FOLDER     writes python_N, which lockstep reads, and refused_N, of other dtypes
    safetensors_both_ways.py compare FOLDER   exits 1 if a lockstep_N has other contents than python_N

The contents are drawn with a fixed seed: every dtype, scalars, empty tensors, up to 6 dimensions, names and metadata of
any characters. Plain files are as the package writes them, and lockstep's must have the same bytes. The others have a
header with other spaces, escapes, order of keys and of the data, and a length that is no multiple of 8.
"""
import json
import random
import sys
from pathlib import Path

import numpy
import safetensors
import safetensors.numpy

FILES = 60
NUMPY = dict(F64="f8", F32="f4", F16="f2", I64="i8", I32="i4", I16="i2", I8="i1", U8="u1", BOOL="?", U16="u2", U32="u4",
             U64="u8", C64="c8")
BYTES = dict(BF16=2, F8_E4M3=1, F8_E5M2=1, F8_E8M0=1)  # not numpy's own
DTYPES = [*NUMPY, *BYTES]
REFUSED = ["F4", "F6_E2M3", "F6_E3M2"]
TEXTS = ["", " ", '"', "\\", "/", "\n", "\t\r\b\f", "\u0001", "\u007f", "weight", "layer.0.weight", "a'b", "\u00fc",
         "\u65e5\u672c", "\U0001f600", "\ufeff", "\uffff", "\u2028", "{}", "dtype", "data_offsets", "__metadata", "x" * 300]


def text(draw):
    return "".join(draw.choice(TEXTS) for _ in range(draw.choice([1, 1, 2, 3])))


def shape(draw):
    return [draw.choice([0, 1, 1, 2, 3, 5]) for _ in range(draw.choice([0, 1, 1, 2, 2, 3, 4, 6]))]


def tensors(draw, dtypes):
    drawn = {}
    for _ in range(draw.randrange(8)):
        dtype, dims = draw.choice(dtypes), shape(draw)
        size = int(numpy.prod(dims)) * (BYTES.get(dtype) or numpy.dtype(NUMPY[dtype]).itemsize)
        values = bytes(draw.randrange(2 if dtype == "BOOL" else 256) for _ in range(size))
        drawn[text(draw)] = (dtype, dims, values)
    return drawn


def plain(drawn, metadata):
    arrays = {name: numpy.frombuffer(values, NUMPY[dtype]).reshape(dims)
              for name, (dtype, dims, values) in drawn.items()}
    return safetensors.numpy.save(arrays, metadata or None)


def composed(draw, drawn, metadata):
    order, data, header = list(drawn), b"", []
    draw.shuffle(order)
    for name in order:
        dtype, dims, values = drawn[name]
        fields = [("dtype", dtype), ("shape", dims), ("data_offsets", [len(data), len(data) + len(values)])]
        draw.shuffle(fields)
        header.append((name, dict(fields)))
        data += values
    if metadata or draw.random() < 0.5:
        header.append(("__metadata__", metadata or draw.choice([{}, None])))
    draw.shuffle(header)
    head = json.dumps(dict(header), ensure_ascii=draw.random() < 0.5, indent=draw.choice([None, 1]),
                      separators=draw.choice([None, (",", ":"), (" , ", "\t:\r\n")])).encode()
    head += b" " * draw.choice([0, 1, 7, 100])
    return len(head).to_bytes(8, "little") + head + data


def write(folder):
    draw = random.Random(1)
    for i in range(FILES):
        is_plain = i % 2 == 0
        drawn = tensors(draw, list(NUMPY if is_plain else DTYPES))
        metadata = {text(draw): text(draw) for _ in range(draw.choice([0, 1, 1] if is_plain else [0, 1, 4]))}
        content = plain(drawn, metadata) if is_plain else composed(draw, drawn, metadata)
        safetensors.deserialize(content)  # the package must read it
        (folder / f"python_{i}{'_plain' if is_plain else ''}").write_bytes(content)
    for i, dtype in enumerate(REFUSED):
        content = composed(draw, {"a": (dtype, [0, 2], b"")}, {})
        safetensors.deserialize(content)
        (folder / f"refused_{i}").write_bytes(content)


def content_of(path):
    with safetensors.safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
    found = {name: (item["dtype"], list(item["shape"]), bytes(item["data"]))
             for name, item in safetensors.deserialize(path.read_bytes())}
    return found, metadata


def compare(folder):
    wrong = count = 0
    for path in sorted(folder.glob("python_*")):
        saved = folder / path.name.replace("python", "lockstep")
        same = saved.exists() and content_of(path) == content_of(saved)
        if same and path.name.endswith("_plain"):
            same = path.read_bytes() == saved.read_bytes()
        if not same:
            print(f"{path.name} and {saved.name} differ")
        wrong += not same
        count += 1
    print(f"{count} files of safetensors {safetensors.__version__} and of lockstep, {wrong} differ")
    return wrong == 0 and count == FILES


command, where = sys.argv[1], Path(sys.argv[2])
if command == "write":
    write(where)
elif command != "compare" or not compare(where):
    sys.exit(1)
