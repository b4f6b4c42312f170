#!/usr/bin/env python3
"""A safetensors file written by the format's own Python package, for the C++ tests. Needs `safetensors` and torch.

    tests/reference/safetensors_file.py                writes the two files beside this script
    tests/reference/safetensors_file.py --check FILE   exits 1 if FILE does not hold the same tensors and metadata

safetensors_file.safetensors: one tensor of each dtype, a scalar, an empty one, one of rank 4, names that JSON must escape
safetensors_file.json: what is in it
    {"safetensors": version, "metadata": {"note": ...}   one key: the package writes several in any order
     "tensors": {name: {"dtype": as the format calls it, "shape": [...], "values": all of them, row by row, exact;
                                                                              a BOOL is 0 or 1}}}
"""
import json
import sys
from pathlib import Path

import safetensors
import safetensors.torch
import torch

HERE = Path(__file__).resolve().parent
METADATA = {"note": 'quoted "text", a back\\slash,\na new line and \u00fc'}
TENSORS = {  # name: dtype, shape, values
    "double": ("F64", [2, 2], [0.1, -1 / 3, 1.7976931348623157e308, 5e-324]),
    "float": ("F32", [2, 3], [1.0, -2.5, 0.10000000149011612, -0.0, 3.4028234663852886e38, 1.401298464324817e-45]),
    "half": ("F16", [4], [1.5, -0.25, 65504.0, 2.0**-24]),
    "brain": ("BF16", [3], [3.140625, -2.0**-126, 3.3895313892515355e38]),
    "int64": ("I64", [3], [-(2**63), 2**63 - 1, -1]),
    "int32": ("I32", [3], [-(2**31), 2**31 - 1, 258]),
    "int16": ("I16", [3], [-(2**15), 2**15 - 1, 258]),
    "int8": ("I8", [3], [-128, 127, -1]),
    "bytes": ("U8", [3], [0, 255, 128]),
    "flags": ("BOOL", [2, 3], [1, 0, 0, 1, 1, 0]),
    "scalar": ("F32", [], [0.5]),
    "empty": ("F32", [0, 3], []),
    "conv.weight": ("F32", [2, 3, 2, 2], [i / 8 - 1 for i in range(24)]),
    'na\u00efve "name"': ("I64", [1], [7]),
}
DTYPES = dict(F64=torch.float64, F32=torch.float32, F16=torch.float16, BF16=torch.bfloat16, I64=torch.int64,
              I32=torch.int32, I16=torch.int16, I8=torch.int8, U8=torch.uint8, BOOL=torch.bool)


def make():
    def tensor(dtype, shape, values):
        made = torch.tensor(values, dtype=DTYPES[dtype]).reshape(shape)
        assert made.flatten().tolist() == values, (dtype, values)  # exact
        return made

    path = HERE / "safetensors_file.safetensors"
    safetensors.torch.save_file({name: tensor(*spec) for name, spec in TENSORS.items()}, path, METADATA)
    tensors = {name: dict(dtype=dtype, shape=shape, values=values) for name, (dtype, shape, values) in TENSORS.items()}
    content = dict(safetensors=safetensors.__version__, metadata=METADATA, tensors=tensors)
    path.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")


def differences(path):
    with safetensors.safe_open(path, framework="pt") as file:
        if file.metadata() != METADATA:
            yield f"metadata {file.metadata()}, expected {METADATA}"
    found = safetensors.torch.load_file(path)
    if sorted(found) != sorted(TENSORS):
        yield f"tensors {sorted(found)}, expected {sorted(TENSORS)}"
        return
    for name, (dtype, shape, values) in TENSORS.items():
        tensor = found[name]
        if (tensor.dtype, list(tensor.shape), tensor.flatten().tolist()) != (DTYPES[dtype], shape, values):
            yield f"{name}: {tensor}, expected {dtype} {shape} {values}"


if sys.argv[1:2] == ["--check"]:
    wrong = list(differences(sys.argv[2]))
    print("\n".join(wrong) or f"{sys.argv[2]} has the expected tensors")
    sys.exit(1 if wrong else 0)
make()
