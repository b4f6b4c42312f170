#!/usr/bin/env python3
"""Finds cycles of includes: in app/ between modules (a header with the source of the same name), in all folders
between headers. (Below app/, a base's source may include the header of what it creates.)

include_cycles.py [ROOT]: prints each cycle and exits 1; prints nothing and exits 0 when there is none.
"""
import pathlib
import re
import sys

FOLDERS = ("app", "data", "models", "parallel", "support")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]lockstep/([^>"]+)[>"]', re.M)


def module(file):
    return file.rsplit(".", 1)[0]


def read_includes(root):
    """Returns for each file the files of the tree that it includes."""
    includes = {}
    for folder in FOLDERS:
        for path in (root / folder).rglob("*"):
            if path.suffix in (".h", ".cuh", ".cpp", ".cu"):
                includes[path.relative_to(root).as_posix()] = set(INCLUDE.findall(path.read_text(encoding="utf-8")))
    return includes


def edges_between_modules(includes):
    edges = {}
    for file, included in includes.items():
        edges.setdefault(module(file), set()).update(module(name) for name in included)
    return {node: others - {node} for node, others in edges.items()}


def reachable(edges, start):
    """Returns the nodes that can be reached over one edge or more, each with the node before it."""
    before = {}
    queue = [start]
    for node in queue:
        for following in sorted(edges.get(node, ())):
            if following not in before:
                before[following] = node
                queue.append(following)
    return before


def find_cycles(edges):
    """Returns one shortest cycle for each group of nodes that reach each other."""
    cycles = []
    seen = set()
    for start in sorted(edges):
        before = reachable(edges, start)
        if start not in before or start in seen:
            continue
        seen.update(node for node in before if start in reachable(edges, node))
        cycle = [start]
        while len(cycle) == 1 or cycle[-1] != start:
            cycle.append(before[cycle[-1]])
        cycles.append(cycle[::-1])
    return cycles


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
    includes = read_includes(root)
    cycles = find_cycles(includes)
    cycles += find_cycles(edges_between_modules({file: of for file, of in includes.items() if file.startswith("app/")}))
    for cycle in cycles:
        print("cycle of includes: " + " -> ".join(cycle))
    sys.exit(1 if cycles else 0)


main()
