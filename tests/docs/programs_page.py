#!/usr/bin/env python3
"""programs_page.py PROGRAM: does what docs/programs.md shows, in its order, in one folder: writes its Python files, and runs
the lines of its `sh` blocks, but for pip's. It runs in the Python that has torch and safetensors."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from blocks import command_lines

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/programs.md").read_text()
FILES = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.S | re.M)
EXPECTED = ["the trained network is back"]  # what the last command prints


def main():
    program = os.path.abspath(sys.argv[1])
    printed = []
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "scripts/export_program.py", folder)
        names = []
        for name, text in FILES.findall(PAGE):
            Path(folder, name).write_text(text)
            names.append(name)
        lines = [line for _, line in command_lines(PAGE)]
        for words in (shlex.split(line, comments=True) for line in [*lines, "python export.py", "lockstep program show net.pt2"]):
            if not words or words[0] == "pip":
                continue
            command = {"lockstep": [program], "python": [sys.executable]}[words[0]] + words[1:]
            environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
            result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            print(f"$ {shlex.join(words)}\n{result.stdout}{result.stderr}", flush=True)
            if result.returncode:
                sys.exit(f"{shlex.join(words)} ended with {result.returncode}")
            printed += result.stdout.splitlines()
        unused = [name for name in names if not any(name in line.split() for line in lines) and name not in ("net.py", "export.py")]
    if unused:
        sys.exit(f"no command runs {unused[0]}")
    shown = re.search(r"```text\n(net\.pt2: .*?)```", PAGE, re.S)[1].splitlines()
    for line in shown[1:] + EXPECTED:
        if line not in printed:
            sys.exit(f"the page shows a line that no command prints: {line}")


if __name__ == "__main__":
    main()
