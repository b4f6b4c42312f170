#!/usr/bin/env bash
# aot_inductor.sh PROGRAM: aot_inductor.py with the Python that has torch; skipped without one.
root=$(cd "$(dirname "$0")/../../.." && pwd)
source "$root/scripts/lib.sh"

need_python_torch
if ! find_python torch safetensors; then
  say "skipped: Python has no safetensors"
  exit 77
fi
OMP_NUM_THREADS=1 exec "$python" "$root/tests/models/program/aot_inductor.py" "$1"
