#!/usr/bin/env python3
"""commands.py PROGRAM: runs every command that README.md and docs/*.md show, at small size.

A command is a line of a block marked `sh` that begins with `lockstep` or `./scripts/run.sh`, or inline code that does
and has a flag. scripts/experiments.py runs the commands of docs/experiments.md and compares what they print. The
commands of a page run in its order in one folder, since some read what others have written. Data are synthetic, sizes
are replaced by small ones, and bf16 by fp32 on a CPU without AVX-512, where it takes minutes. A command for GPUs may end
with 0 or 5, `data verify` with 0 or 3, `doctor` with 0 or 1; any other one must end with 0.

Not run here, but by tests/launchers with the words of the page: a command with --rank, which waits for other processes,
and lockstep under other launchers (torchrun, mpirun, srun).

Other scripts that a block names must exist and be executable."""

import json
import os
import pathlib
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

from blocks import BLOCKS, command_lines

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from experiments import SMALL  # noqa: E402

PAGES = [page for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
         if page.name != "experiments.md"]
PROGRAMS = ("lockstep", "./scripts/run.sh")
INLINE = re.compile(r"`((?:lockstep|\./scripts/run\.sh) [^`\n]+)`")
# For flags that a command gives; those that it leaves open are as small, through the environment.
SMALLER = {"--batch-size": "8", "--limit-train": "64", "--limit-test": "16", "--epochs": "2", "--limit-steps": "1",
           "--repeat": "3", "--threads": "1", "--min-bytes": "1K", "--max-bytes": "32K"}
if "avx512f" not in pathlib.Path("/proc/cpuinfo").read_text():
    SMALLER["--precision"] = "fp32"
WRITES = ("--save", "--metrics", "--trace", "--json", "--output", "plot", ">")
GPU_REFUSED = 5  # exit code: no such device
DATA_MISSING = 3  # exit code: the data set is not installed
CHECK_FAILED = 1  # exit code: of this machine


def shown(page):
    """The command lines of a page, in its order, and the scripts that it names."""
    text = page.read_text()
    lines = command_lines(text)
    prose = BLOCKS.sub(lambda block: " " * len(block[0]), text)
    lines += [(match.start(), match[1]) for match in INLINE.finditer(prose) if " --" in match[1]]
    commands, scripts = [], []
    for _, line in sorted(lines, key=lambda entry: entry[0]):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] in PROGRAMS and "--rank" not in words:
            commands.append(tuple(words[1:]))
        elif "scripts/" in words[0]:
            scripts.append(words[0])
    return commands, scripts


def made_small(words):
    words = list(words)
    for place, flag in enumerate(words[:-1]):
        if flag in SMALLER:
            words[place + 1] = SMALLER[flag]
    return words


def accepted(words):
    """The exit codes with which a command may end, and what is added to it."""
    if any("cuda" in word for word in words):
        return (0, GPU_REFUSED), ["--dry-run"] if words[0] == "train" and "--dry-run" not in words else []
    if words[:1] == ["doctor"]:
        return (0, CHECK_FAILED), []
    return ((0, DATA_MISSING) if words[:2] == ["data", "verify"] else (0,)), []


def run(program, words, folder, environment):
    output = None
    if words[-2:-1] == [">"]:
        output = words[-1]
        words = words[:-2]
    codes, more = accepted(words)
    environment = dict(environment)
    if words[:1] == ["data"] or "net" in words:  # the run of a program has data of its own
        del environment["LOCKSTEP_FLAG_DATA"]
    result = subprocess.run([program, *words, *more], cwd=folder, env=environment, capture_output=True, text=True)
    if result.returncode in codes:
        if output:
            pathlib.Path(folder, output).write_text(result.stdout)
        return []
    return [f"lockstep {shlex.join(words)}\n"
            f"  ended with {result.returncode}, expected {' or '.join(map(str, codes))}:\n"
            f"{result.stdout[-500:]}{result.stderr[-1000:]}"]


def write_data(path):
    """A safetensors file of 256 and 64 rows for the fixture mlp.pt2: six numbers, and one to predict."""
    header, numbers = {}, []
    for part, rows in (("train", 256), ("test", 64)):
        for name, columns in (("X", 6), ("y", 1)):
            begin = 4 * len(numbers)
            numbers += [i * 37 % 29 / 16 - .875 for i in range(rows * columns)]
            header[f"{part}.{name}"] = {"dtype": "F32", "shape": [rows, columns],
                                        "data_offsets": [begin, 4 * len(numbers)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack(f"<{len(numbers)}f", *numbers))


def png(side, colours):
    """A PNG of side x side pixels of one colour."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    lines = (b"\0" + bytes(colours) * side) * side
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def write_photos(folder):
    """Two classes of images, 40 for training and 10 for testing each; those of one class are redder."""
    for half, rows in (("train", 40), ("test", 10)):
        for label, name in enumerate(("cat", "dog")):
            (folder / half / name).mkdir(parents=True)
            for row in range(rows):
                image = png(32 + row % 3, (60 + 100 * label + row, 90, 120))
                (folder / half / name / f"{row}.png").write_bytes(image)


def give_files(folder):
    """The files that the user of a page has: an exported program, also where it has moved, and its data."""
    folder = pathlib.Path(folder)
    (folder / "elsewhere").mkdir()
    for place in (folder, folder / "elsewhere"):
        shutil.copy(ROOT / "tests/models/program/fixtures/mlp.pt2", place / "net.pt2")
    write_data(folder / "data.safetensors")
    write_photos(folder / "photos")


def main():
    program = os.path.abspath(sys.argv[1])
    flags = {f"LOCKSTEP_FLAG_{name}": str(value) for name, value in {**SMALL, "EPOCHS": 2}.items()}
    environment = {**os.environ, **flags}
    found, seen, count, started = [], set(), 0, time.monotonic()
    for page in PAGES:
        commands, scripts = shown(page)
        found += [f"{page.name}: {script} is no executable file" for script in scripts
                  if not os.access(ROOT / script, os.X_OK)]
        with tempfile.TemporaryDirectory() as folder:
            give_files(folder)
            for words in map(made_small, commands):  # some are then the same
                if tuple(words) in seen and not any(word in WRITES for word in words):
                    continue
                seen.add(tuple(words))
                count += 1
                begun = time.monotonic()
                found += [f"{page.name}: {problem}" for problem in run(program, words, folder, environment)]
                print(f"{time.monotonic() - begun:5.1f} s  {page.name}: lockstep {shlex.join(words)}", flush=True)
    if count == 0:
        found.append("the pages show no commands")
    print("\n".join(found) or f"{count} commands of the pages run, in {time.monotonic() - started:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
