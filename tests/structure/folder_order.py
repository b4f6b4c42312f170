#!/usr/bin/env python3
"""Checks the order of app/'s folders, which a table in docs/design.md lists: a file includes only files of its own
folder and of folders above it in the table. So no folders include each other in a circle.

folder_order.py [ROOT]: prints each include that goes the other way, each folder without a row, and each row without a
folder, and exits 1; prints nothing and exits 0 when there is none.
"""
import pathlib
import re
import sys

HEADING = "### Folders of `app/`"
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]lockstep/(app/[^>"]+)[>"]', re.M)


def read_order(page):
    section = page.read_text(encoding="utf-8").split(HEADING, 1)[1].split("\n#", 1)[0]
    return re.findall(r"^\| `(app[^`]*)` \|", section, re.M)


def folder_of(file):
    return file.rsplit("/", 1)[0]


def read_includes(root):
    """Returns for each source below app/ the files of app/ that it includes."""
    sources = (path for path in (root / "app").rglob("*") if path.suffix in (".h", ".cpp", ".cu", ".cuh"))
    return {path.relative_to(root).as_posix(): INCLUDE.findall(path.read_text(encoding="utf-8")) for path in sources}


def find_faults(order, includes):
    place = {folder: row for row, folder in enumerate(order)}
    folders = {folder_of(file) for file in includes}
    yield from (f"{file}: its folder has no row in docs/design.md" for file in includes if folder_of(file) not in place)
    yield from (f"{folder} has a row in docs/design.md, but no files" for folder in order if folder not in folders)
    for file, included in sorted(includes.items()):
        for other in included:
            here, there = folder_of(file), folder_of(other)
            if here in place and there in place and place[there] > place[here]:
                yield f"{file} includes {other}: {there} is below {here} in docs/design.md"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
    faults = list(find_faults(read_order(root / "docs" / "design.md"), read_includes(root)))
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


main()
