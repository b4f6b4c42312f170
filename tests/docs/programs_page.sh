#!/usr/bin/env bash
# programs_page.sh PROGRAM: programs_page.py with the Python that has torch; skipped without one.
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/scripts/lib.sh"

need_python_torch
if ! find_python torch safetensors; then
  say "skipped: Python has no safetensors"
  exit 77
fi
exec "$python" "$root/tests/docs/programs_page.py" "$1"
