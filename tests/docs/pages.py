#!/usr/bin/env python3
"""pages.py PROGRAM: what can be checked of README.md, CONTRIBUTING.md, CHANGELOG.md and docs/*.md without running it.

  - links into the tree lead to files and headings that exist
  - README.md has at most 150 lines; lines of text have at most 120 columns (README.md: tables and code too)
  - all text is ASCII
  - inline code that begins with `lockstep` names a command
  - flags of a script in a block marked `sh` stand in a file of scripts/ or scripts/compare/
  - docs/cli.md names every flag of every command's --help, and no page names a flag that none has
  - the tests that a table names after a link to their file exist
  - the C++ code of docs/migrating.md, docs/your-loop.md and docs/sharding.md is that of tests/docs/migrating_test.cpp,
    and their Python code can be parsed
  - the Python function of docs/cli.md gives the order of batches that tests/reference/batch_order.txt holds"""

import ast
import os
import pathlib
import re
import subprocess
import sys

from blocks import command_lines

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]
MIGRATING = [ROOT / "docs/migrating.md", ROOT / "docs/your-loop.md", ROOT / "docs/sharding.md"]
CODE = re.compile(r"^```.*?^```$", re.S | re.M)
MOST_LINES, COLUMNS = 150, 120
# The flags of other programs and of the scripts, and those of earlier versions in the changelog.
OTHER_PROGRAMS = re.compile(r"scripts/|ctest|cmake|models_tests|pkg-config|CHANGELOG")
# Programs that start lockstep have flags of their own before lockstep's name; a batch script has them in comments.
LAUNCHERS = re.compile(r"\b(torchrun|mpirun|srun)\b.*?(?=lockstep |$)|^#SBATCH .*")


def anchors(page):
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page, text):
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", text)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        if not file.exists():
            found.append(f"{page.name}: no file {target}")
        elif anchor and anchor not in anchors(file):
            found.append(f"{page.name}: no heading {target}")
    return found


def wide_lines(page, text):
    found = []
    readme = page.name == "README.md"
    if readme and text.count("\n") > MOST_LINES:
        found.append(f"README.md has {text.count(chr(10))} lines, at most {MOST_LINES} are wanted")
    lines = text if readme else CODE.sub(lambda block: "\n" * block[0].count("\n"), text)
    for number, line in enumerate(lines.splitlines(), 1):
        if len(line) > COLUMNS and (readme or not line.startswith("|")):
            found.append(f"{page.name}:{number}: {len(line)} columns, at most {COLUMNS} are wanted")
        if not line.isascii():
            found.append(f"{page.name}:{number}: not ASCII")
    return found


def help_of(program, *words):
    result = subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True)
    return result.stdout


def all_flags(program):
    """The flags of each command, also of commands within commands."""
    flags, commands = {}, [()]
    while commands:
        words = commands.pop()
        text = help_of(program, *words)
        flags[words] = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text))
        inner = re.search(r"^(?:sub)?commands:\n(.*)", text, re.I | re.S | re.M)
        names = re.findall(r"^  ([a-z][a-z-]*)  ", inner[1], re.M) if inner else []
        commands += [(*words, name) for name in names]
    return flags


def unknown_flags(page, text, known):
    found = []
    for line in text.splitlines():
        if OTHER_PROGRAMS.search(line) or OTHER_PROGRAMS.search(page.name):
            continue
        for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", LAUNCHERS.sub("", line))) - known:
            found.append(f"{page.name}: no command has {flag}")
    return found


def unknown_commands(page, text, flags):
    found = []
    for code in re.findall(r"`lockstep ([^`\n]+)`", CODE.sub("", text)):
        words = tuple(word for word in code.split() if not word.startswith("-"))
        has_inner = any(known[:1] == words[:1] and len(known) == 2 for known in flags)
        if words and words[:2 if has_inner else 1] not in flags:
            found.append(f"{page.name}: no command lockstep {code}")
    return found


def unknown_script_flags(page, text, sources):
    found = []
    for _, line in command_lines(text):
        if not re.match(r"(\./)?scripts/(?!run\.sh)", line):
            continue
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", line.split(" #")[0]):
            if not re.search(rf"{flag}(?![\w-])", sources):
                found.append(f"{page.name}: no script has {flag}")
    return found


def batch_order_problem(text):
    code = re.search(r"^```python\n(def batch_order.*?)^```$", text, re.S | re.M)
    if not code:
        return ["cli.md: no function batch_order"]
    names = {}
    exec(code[1], names)  # our own page
    for line in (ROOT / "tests/reference/batch_order.txt").read_text().splitlines():
        seed, epoch, rows, _, *first = line.split()
        if int(rows) > 100:
            continue
        order = names["batch_order"](int(seed), int(epoch), int(rows))
        if [str(row) for row in order[:8]] != first or sorted(order) != list(range(int(rows))):
            return [f"cli.md: batch_order({seed}, {epoch}, {rows}) begins with {order[:8]}, expected {first}"]
    return []


def test_cases(file):
    """The names of a C++ test's cases."""
    literals = re.findall(r'TEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', file.read_text())
    return ["".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literal)) for literal in literals]


def unknown_tests(page, text):
    """A cell names a case behind a link to its file: [x_test.cpp](../tests/x_test.cpp) "case", "begin of a case ..."."""
    found = []
    for target, names in re.findall(r'\]\(([^)\s]+_test\.cpp)\)((?:,? "[^"|]+")+)', text):
        file = page.parent / target
        cases = test_cases(file) if file.exists() else []
        for name in re.findall(r'"([^"]+)"', names):
            name, more, _ = name.partition(" ...")
            name = name.rstrip(",") if more else name
            if not any(case.startswith(name) if more else case == name for case in cases):
                found.append(f"{page.name}: {target} has no case {name}")
    return found


def untested_code():
    tested = (ROOT / "tests/docs/migrating_test.cpp").read_text().splitlines()
    # Without the column in which clang-format puts the comments behind lines.
    code = "\n".join(re.sub(r" +//", " //", line.strip()) for line in tested if "// test" not in line)
    found = []
    for page in MIGRATING:
        text = page.read_text()
        for block in re.findall(r"^```cpp\n(.*?)^```$", text, re.S | re.M):
            lines = "\n".join(re.sub(r" +//", " //", line.strip()) for line in block.splitlines())
            if f"\n{lines}\n" not in code:
                found.append(f"{page.name}: not in migrating_test.cpp: {block.splitlines()[0]} ...")
        for block in re.findall(r"^```python\n(.*?)^```$", text, re.S | re.M):
            ast.parse(block)
    return found


def private_headers():
    """The pages that move other people's programs speak of installed headers only."""
    public = set(re.findall(r"^  ([a-z_0-9/]+\.h)", (ROOT / "cmake/LockstepPublicHeaders.cmake").read_text(), re.M))
    linked = set(re.findall(r"\]\(\.\./([a-z_0-9/]+\.h)\)", "".join(page.read_text() for page in MIGRATING)))
    included = set(re.findall(r"<lockstep/(?!tests/)([a-z_0-9/]+\.h)>", (ROOT / "tests/docs/migrating_test.cpp").read_text()))
    found = [f"{header} is not installed" for header in sorted((linked | included) - public)]
    return found if len(public) > 20 and linked and included else [*found, "no headers found"]


def main():
    flags = all_flags(os.path.abspath(sys.argv[1]))
    known = set().union(*flags.values())
    scripts = [*ROOT.glob("scripts/*.*"), *ROOT.glob("scripts/compare/*.*")]
    sources = "".join(script.read_text() for script in scripts)
    found = [] if len(flags) > 10 else [f"the help lists only the commands {sorted(flags)}"]
    for page in PAGES:
        text = page.read_text()
        found += broken_links(page, text) + wide_lines(page, text) + unknown_flags(page, text, known)
        found += unknown_commands(page, text, flags)
        found += unknown_script_flags(page, text, sources) + unknown_tests(page, text)
    reference = (ROOT / "docs/cli.md").read_text()
    for flag in sorted(known - {"--help"}):
        if not re.search(rf"{flag}(?![\w-])", reference):
            found.append(f"cli.md does not name {flag}")
    found += batch_order_problem(reference) + untested_code() + private_headers()
    print("\n".join(found) or f"{len(PAGES)} pages, {len(flags)} commands, {len(known)} flags")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
