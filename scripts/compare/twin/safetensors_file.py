"""Reads a safetensors file (8 bytes of length, a JSON header, the data). Needs only torch."""
import json
import struct
from pathlib import Path

import torch

DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}


def load(path):
    """Returns (tensors by name, metadata)."""
    content = Path(path).read_bytes()
    length, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(content[begin:end]), dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.view(entry["shape"])
    return tensors, metadata
