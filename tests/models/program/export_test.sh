#!/usr/bin/env bash
# export_test.sh: tests scripts/export_program.py with the Python that has torch; skipped without one.
root=$(cd "$(dirname "$0")/../../.." && pwd)
source "$root/scripts/lib.sh"

need_python_torch
OMP_NUM_THREADS=1 exec "$python" "$root/tests/models/program/export_test.py"
