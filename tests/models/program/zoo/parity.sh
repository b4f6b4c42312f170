#!/usr/bin/env bash
# parity.sh PROGRAM_LOSSES [ARGUMENT...]: parity.py with the Python that has torch; skipped without one.
root=$(cd "$(dirname "$0")/../../../.." && pwd)
source "$root/scripts/lib.sh"

need_python_torch
exec "$python" "$root/tests/models/program/zoo/parity.py" "$@"
