#!/usr/bin/env python3
"""Finds types of one name that are defined differently. Linked into one program they are undefined behaviour.

same_types.py [ROOT]: prints each such name with its places and exits 1; prints nothing and exits 0 when there is none.
Looks at struct, class, union and enum in named namespaces and in the global one; an anonymous namespace belongs to its
file. All sources count as one program, except for files that replace each other: x_cuda.cpp, x_stub.cpp and a test's
fake_x.cpp.
"""
import collections
import pathlib
import re
import sys

FOLDERS = ("app", "data", "models", "parallel", "support", "tests")
SUFFIXES = (".h", ".cuh", ".cpp", ".cu")
# In this order: what starts first wins. Comments, preprocessor lines and literals hold braces that open nothing.
NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|^[ \t]*#(?:\\\n|[^\n])*|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.S | re.M)
NAMESPACE = re.compile(r"\bnamespace(?:\s+([\w:]+))?\s*$")
TYPE = re.compile(
    r"\b(?:enum\s+(?:class|struct)|enum|struct|class|union)\s+(?:alignas\s*\([^)]*\)\s*|\[\[[^\]]*\]\]\s*)*"
    r"([A-Za-z_][\w:]*\s*(?:<[^{}();]*>)?)\s*(?:final\s*)?(?::[^:][^(){};]*)?$")


def blank(match):
    text = match.group(0)
    if text.startswith(("//", "/*")):
        return " "
    return " " if text.lstrip().startswith("#") else '""' + re.sub(r"\W", "", text)


def definitions(text):
    """Yields (qualified name, text without comments and layout) of each type that other files could see."""
    text = NOISE.sub(blank, text)
    scopes = []  # (kind, name, start of the body)
    head = 0
    for match in re.finditer(r"[;{}]", text):
        where = match.start()
        if match.group() == "{":
            before = text[head:where]
            if space := NAMESPACE.search(before):
                scopes.append(("namespace", space.group(1), where))
            elif kind := TYPE.search(before):
                scopes.append(("type", re.sub(r"\s+", "", kind.group(1)), where))
            elif re.search(r'\bextern\s+""\w*\s*$', before):
                scopes.append(("namespace", "", where))
            else:
                scopes.append(("code", None, where))
        elif match.group() == "}" and scopes:
            kind, name, start = scopes.pop()
            if kind == "type" and all(scope[0] == "namespace" and scope[1] is not None for scope in scopes):
                qualified = "::".join([scope[1] for scope in scopes if scope[1]] + [name])
                yield qualified, re.sub(r"\s+", " ", text[start:where]).strip()
        head = where + 1


def replace_each_other(files):
    return len({re.sub(r"^fake_|_cuda$|_stub$", "", pathlib.PurePath(file).stem) for file in files}) == 1


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
    places = collections.defaultdict(lambda: collections.defaultdict(list))
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                for name, body in definitions(path.read_text(encoding="utf-8")):
                    places[name][body].append(path.relative_to(root).as_posix())
    found = False
    for name, bodies in sorted(places.items()):
        files = sorted({file for files in bodies.values() for file in files})
        if len(bodies) > 1 and len(files) > 1 and not replace_each_other(files):
            print(f"defined differently: {name} in {', '.join(files)}")
            found = True
    sys.exit(1 if found else 0)


main()
