#!/usr/bin/env python3
"""Runs the commands of docs/experiments.md.

  scripts/experiments.py refresh --program PROGRAM    runs every command and puts its output into the page
  scripts/experiments.py check --program PROGRAM      runs every command at small size and compares its output with the
                                                      page: the same tables, all checks OK
  scripts/experiments.py readme --program PROGRAM     runs the README's training and puts its output, shortened, there

PROGRAM is the built lockstep. Commands are the lines of a block marked `sh` that begin with `lockstep`. The block
marked `text` after it is their output. Commands run in the page's order in one folder, since some draw what others have
written. Their pictures are kept beside the page. `check` uses synthetic data and sets every flag that a command leaves
open to a small value, through the environment."""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "experiments.md"
README = ROOT / "README.md"
README_BLOCK = re.compile(r"(<!-- output of \./scripts/run\.sh ([^,]+),[^\n]*-->\n```text\n).*?"
                          r"(```\n<!-- end of output -->)", re.S)
README_ROWS = ("recipe", "model", "devices", "batch", "training")  # of the plan
BLOCKS = re.compile(r"```sh\n(?P<commands>(?:lockstep [^\n]*\n)+)```\n\n```text\n(?P<output>.*?)```\n", re.S)
# For flags that a command leaves open, through the environment. A step of ResNet-18 on 16 images takes a second.
SMALL = dict(DATA="synthetic", LIMIT_TRAIN=64, LIMIT_TEST=16, BATCH_SIZE=8, LIMIT_STEPS=1, ITERATIONS=1, REPEAT=3, SIZE=48,
             MAX_BYTES="32K", THREADS=1)
PICTURES = (".svg",)


def run(program, commands, folder, environment):
    """Returns the output of the block's commands. Ends the script when one fails."""
    printed = []
    for line in commands.strip().splitlines():
        words = shlex.split(line.split(" #")[0])
        result = subprocess.run([program, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"{line}\nended with {result.returncode}:\n{result.stdout}{result.stderr}")
        printed.append(result.stdout)
    return "".join(printed)


def headings(output):
    """The titles of every table, in words: the line between a lone '#' and a line of units."""
    lines = output.splitlines()
    units = re.compile(r"#( +\([^)]*\))* *$")
    return [tuple(line.split()) for before, line, behind in zip(lines, lines[1:], lines[2:])
            if before == "#" and line.startswith("# ") and units.match(behind)]


def labels(output):
    """The words on the left of a run without tables: 'recipe', 'epoch', 'test acc', ..."""
    return set(re.findall(r"^ *([a-z][a-z ]*?)(?: {2,}|: | +\d)", output, re.M))


def problems(commands, expected, printed):
    found = []
    for titles in headings(expected):
        if titles not in headings(printed):
            found.append(f"no table {' '.join(titles)}")
    if not headings(expected):
        missing = labels(expected) - labels(printed)
        if missing:
            found.append(f"not printed: {', '.join(sorted(missing))}")
    if "FAILED" in printed:
        found.append("a check FAILED")
    for footer in re.findall(r"^# (\w+): OK", expected, re.M):
        if f"# {footer}: OK" not in printed:
            found.append(f"no '{footer}: OK'")
    return [f"{commands.strip()}\n  {problem}" for problem in found]


def check(program, page):
    environment = {**os.environ, **{f"LOCKSTEP_FLAG_{name}": str(value) for name, value in SMALL.items()}}
    found, blocks = [], list(BLOCKS.finditer(page))
    with tempfile.TemporaryDirectory() as folder:
        for block in blocks:
            printed = run(program, block["commands"], folder, environment)
            found += problems(block["commands"], block["output"], printed)
    if not blocks:
        found.append("the page has no commands")
    print("\n".join(found) or f"{len(blocks)} experiments print what the page shows")
    return 1 if found else 0


def refresh(program, page, only):
    with tempfile.TemporaryDirectory() as folder:

        def again(block):
            if only not in block["commands"]:
                return block[0]
            print(block["commands"].strip(), file=sys.stderr)
            output = run(program, block["commands"], folder, os.environ)
            return f"```sh\n{block['commands']}```\n\n```text\n{output}```\n"

        PAGE.write_text(BLOCKS.sub(again, page))
        for picture in pathlib.Path(folder).iterdir():
            if picture.suffix in PICTURES:
                shutil.copy(picture, PAGE.parent)
    return 0


def shortened(output):
    """Some rows of the plan, the first and the last step line, and everything after the last one."""
    lines = output.splitlines()
    steps = [number for number, line in enumerate(lines) if line.startswith("epoch") and "| step" in line]
    rows = [line for line in lines[1:steps[0]] if line.split()[:1] and line.split()[0] in README_ROWS]
    kept = [lines[0], *rows, "  ...", lines[steps[0]], "  ...", *lines[steps[-1]:]]
    return "".join(line + "\n" for line in kept)


def refresh_readme(program):
    text = README.read_text()
    block = README_BLOCK.search(text)
    with tempfile.TemporaryDirectory() as folder:
        output = run(program, "lockstep " + block[2], folder, os.environ)
    README.write_text(text[:block.start()] + block[1] + shortened(output) + block[3] + text[block.end():])
    print("README.md names the machine above this output: see that it is this one", file=sys.stderr)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "readme", "refresh"])
    parser.add_argument("--program", required=True, help="the built lockstep")
    parser.add_argument("--only", default="", metavar="WORDS",
                        help="refresh only blocks whose commands contain these words")
    arguments = parser.parse_args()
    program, page = os.path.abspath(arguments.program), PAGE.read_text()
    if arguments.what == "readme":
        return refresh_readme(program)
    return check(program, page) if arguments.what == "check" else refresh(program, page, arguments.only)


if __name__ == "__main__":
    sys.exit(main())
