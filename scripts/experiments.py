#!/usr/bin/env python3
"""docs/experiments.md is what it says: this runs its commands.

  scripts/experiments.py refresh --program build/release/lockstep    runs every command and puts what it prints into the page
  scripts/experiments.py check --program build/release/lockstep      runs every command at small size and compares what is printed
                                                                     with the page: the same tables, all checks OK

A command is a block of the page marked `sh` with lines that begin with `lockstep`; the block marked `text` behind it is what it printed.
Commands run in the page's order in one folder, since some draw what others have written; pictures that they draw are kept beside the page.
For `check` every flag that a command leaves open is made small through the environment; data are synthetic."""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "experiments.md"
BLOCKS = re.compile(r"```sh\n(?P<commands>(?:lockstep [^\n]*\n)+)```\n\n```text\n(?P<output>.*?)```\n", re.S)
SMALL = dict(DATA="synthetic", LIMIT_TRAIN=256, BATCH_SIZE=32, LIMIT_STEPS=1, ITERATIONS=2, REPEAT=3, SIZE=48, MAX_BYTES="32K",
             THREADS=1)
PICTURES = (".svg",)


def run(program, commands, folder, environment):
    """What the block's commands print, each behind the others. Ends the script where one fails."""
    printed = []
    for line in commands.strip().splitlines():
        words = shlex.split(line.split(" #")[0])
        result = subprocess.run([program, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"{line}\nended with {result.returncode}:\n{result.stdout}{result.stderr}")
        printed.append(result.stdout)
    return "".join(printed)


def headings(output):
    """The titles of every table, in words: the line between one that is only '#' and one that has nothing but units."""
    lines = output.splitlines()
    units = re.compile(r"#( +\([^)]*\))* *$")
    return [tuple(line.split()) for before, line, behind in zip(lines, lines[1:], lines[2:])
            if before == "#" and line.startswith("# ") and units.match(behind)]


def labels(output):
    """What a run without tables prints on the left: 'recipe', 'epoch', 'test acc', ..."""
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "refresh"])
    parser.add_argument("--program", required=True, help="the built lockstep")
    parser.add_argument("--only", default="", metavar="WORDS", help="refresh only blocks whose commands contain these words")
    arguments = parser.parse_args()
    program, page = os.path.abspath(arguments.program), PAGE.read_text()
    return check(program, page) if arguments.what == "check" else refresh(program, page, arguments.only)


if __name__ == "__main__":
    sys.exit(main())
