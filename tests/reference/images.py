#!/usr/bin/env python3
"""Writes small PNG and JPEG files, and the pixels that Pillow reads from them, for the C++ tests. Needs Pillow and numpy.

    tests/reference/images.py      writes images.json beside this script, and the corpus of tests/fuzz/image_fuzz.cpp

images.json: "files" has the bytes of each file; "decoded" the pixels of a file, (channels, height, width), with the channels
and the size that were asked for; "resized" an image of one channel and its resized centre. Bytes are in hexadecimal digits.
Pillow 13.0.0 has written the file; its values are those of convert("RGB"), convert("L"), ImageOps.exif_transpose() and
resize(), with torchvision's sizes. It takes the lower 8 of 16 grey bits for what they are not: there the upper 8 are given.
"""
import io
import json
import random
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

HERE = Path(__file__).parent
CORPUS = HERE.parent / "fuzz" / "corpus" / "image"
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def noise(seed, *shape, below=256):
    values = random.Random(seed)
    return np.array([values.randrange(below) for _ in range(int(np.prod(shape)))]).reshape(shape)


def smooth(height, width, channels):
    """A picture that JPEG keeps well: slopes of a colour each."""
    y, x, c = np.mgrid[0:height, 0:width, 0:channels]
    return ((y * (5 + 3 * c) + x * (11 - 4 * c) + 40 * c) % 256).astype(np.uint8)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed_row(row, depth):
    if depth == 16:
        return row.astype(">u2").tobytes()
    if depth == 8:
        return row.astype(np.uint8).tobytes()
    bits = "".join(format(value, f"0{depth}b") for value in row.flat)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def png(values, color_type, depth, interlaced=False, extra=b"", ends=b""):
    """values: (height, width, samples). extra: chunks before the pixels; ends: chunks behind them."""
    height, width, _ = values.shape
    passes = [values[y::down, x::across] for x, y, across, down in ADAM7] if interlaced else [values]
    rows = [b"\0" + packed_row(row, depth) for part in passes if part.shape[1] for row in part]
    header = struct.pack(">IIBBBBB", width, height, depth, color_type, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(b"".join(rows), 9)) +
            ends + chunk(b"IEND", b""))


def exif(orientation, order="<"):
    mark = b"II" if order == "<" else b"MM"
    entries = [(0x0100, 3, 1, 9), (0x0112, 3, 1, orientation)]
    body = b"".join(struct.pack(order + "HHIHH", *entry, 0) for entry in entries)
    return mark + struct.pack(order + "HIH", 42, 8, len(entries)) + body + struct.pack(order + "I", 0)


def jpeg(values, mode, **options):
    file = io.BytesIO()
    Image.fromarray(values[:, :, 0] if values.shape[2] == 1 else values, mode).save(file, "JPEG", quality=90, **options)
    return file.getvalue()


def png_files():
    files = {}
    for color_type, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items():
        for depth in depths:
            colors = min(2 ** depth, 200)  # a palette with fewer colours than 8 bits can name
            extra = chunk(b"PLTE", noise(7, colors, 3).astype(np.uint8).tobytes()) if color_type == 3 else b""
            values = noise(depth, 5, 7, SAMPLES[color_type], below=colors if color_type == 3 else 2 ** depth)
            files[f"png_type_{color_type}_bits_{depth}"] = png(values, color_type, depth, extra=extra)
            files[f"png_type_{color_type}_bits_{depth}_interlaced"] = png(values, color_type, depth, True, extra)
    for name, color_type, depth, rest in (("grey", 0, 8, b"\0\7"), ("color", 2, 8, b"\0\1\0\2\0\3")):
        files[f"png_transparent_{name}"] = png(noise(3, 5, 7, SAMPLES[color_type]), color_type, depth,
                                               extra=chunk(b"tRNS", rest))
    palette = chunk(b"PLTE", bytes(range(12))) + chunk(b"tRNS", b"\0\x80")
    files["png_transparent_palette"] = png(noise(4, 5, 7, 1, below=4), 3, 2, extra=palette)
    # Chunks that have no effect: gamma, a colour profile that cannot be unpacked, a text.
    other = chunk(b"gAMA", b"\0\0\x10\0") + chunk(b"iCCP", b"x\0\0broken") + chunk(b"tEXt", b"a\0b")
    files["png_other_chunks"] = png(noise(5, 5, 7, 3), 2, 8, extra=other)
    files["png_turned"] = png(noise(6, 5, 7, 3), 2, 8, extra=chunk(b"eXIf", exif(6)))
    files["png_turned_behind"] = png(noise(6, 5, 7, 3), 2, 8, ends=chunk(b"eXIf", exif(8, ">")))
    files["png_bytes_behind"] = png(noise(8, 5, 7, 1), 0, 8) + b"more"
    return files


def jpeg_files():
    color, grey = smooth(19, 21, 3), smooth(19, 21, 1)
    files = {"jpeg_grey": jpeg(grey, "L"), "jpeg_progressive": jpeg(color, "RGB", progressive=True),
             "jpeg_progressive_grey": jpeg(grey, "L", progressive=True),
             "jpeg_rgb": jpeg(color, "RGB", keep_rgb=True),
             "jpeg_restarts": jpeg(color, "RGB", restart_marker_blocks=1),
             "jpeg_cmyk": jpeg(smooth(9, 10, 4), "CMYK"),
             "jpeg_bytes_behind": jpeg(grey, "L") + b"more",
             "jpeg_one_pixel": jpeg(color[:1, :1], "RGB")}
    for name, subsampling in (("444", 0), ("422", 1), ("420", 2)):
        files[f"jpeg_{name}"] = jpeg(color, "RGB", subsampling=subsampling)
    for orientation in range(10):  # 0 and 9 are none
        order = "<>"[orientation % 2]
        files[f"jpeg_orientation_{orientation}"] = jpeg(color[:9, :13], "RGB", exif=b"Exif\0\0" + exif(orientation, order))
    files["jpeg_broken_exif"] = jpeg(color[:9, :13], "RGB", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    return files


def opened(name, file):
    if name.startswith("png_type_0_bits_16"):
        return Image.fromarray((np.array(Image.open(io.BytesIO(file))) >> 8).astype(np.uint8), "L")
    if "broken_exif" in name:
        return Image.open(io.BytesIO(file))
    return ImageOps.exif_transpose(Image.open(io.BytesIO(file)))


def centre(image, size):
    """torchvision's Resize(size) and CenterCrop(size)."""
    width, height = image.size
    short = min(width, height)
    width, height = (size if side == short else int(size * side / short) for side in (width, height))
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = int(round((width - size) / 2)), int(round((height - size) / 2))
    return image.crop((left, top, left + size, top + size))


def planes(image):
    values = np.array(image)
    return (values[None] if values.ndim == 2 else values.transpose(2, 0, 1)).astype(np.uint8).tobytes().hex()


def decoded_cases(files):
    for name, file in files.items():
        sizes = (0, 4, 31) if name in ("png_type_2_bits_8", "jpeg_420", "jpeg_grey", "jpeg_orientation_6") else (0,)
        for size in sizes:
            for channels, mode in ((3, "RGB"), (1, "L")):
                image = opened(name, file).convert(mode)
                image = centre(image, size) if size else image
                yield {"file": name, "channels": channels, "size": size, "height": image.height, "width": image.width,
                       "values": planes(image)}


def resized_cases():
    for number, (height, width, size) in enumerate((
            (5, 7, 5), (7, 5, 3), (6, 6, 6), (6, 6, 1), (4, 9, 8), (9, 4, 11), (1, 1, 4), (1, 40, 3), (40, 1, 2), (3, 50, 2),
            (28, 28, 32), (37, 50, 22), (50, 37, 22), (61, 64, 10), (23, 24, 22), (24, 23, 21), (2, 3, 17))):
        for kind, values in (("noise", noise(number, height, width)), ("edges", noise(number, height, width, below=2) * 255)):
            image = Image.fromarray(values.astype(np.uint8), "L")
            yield {"kind": kind, "height": height, "width": width, "size": size, "values": planes(image),
                   "centre": planes(centre(image, size))}


def main():
    files = {**png_files(), **jpeg_files()}
    cases = {"files": {name: file.hex() for name, file in files.items()}, "decoded": list(decoded_cases(files)),
             "resized": list(resized_cases())}
    text = ",\n".join(f'"{part}": ' + json.dumps(cases[part]).replace('}, {', '},\n{').replace('", "', '",\n"' if part == "files" else '", "')
                      for part in cases)
    (HERE / "images.json").write_text("{" + text + "}\n")
    CORPUS.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        if not name.startswith("jpeg_orientation") or name.endswith("6"):
            (CORPUS / name).write_bytes(file)


main()
