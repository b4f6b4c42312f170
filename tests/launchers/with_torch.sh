#!/usr/bin/env bash
# with_torch.sh SCRIPT ARGS...: runs a Python script with a Python that has torch; skipped where there is none.
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
need_python_torch
exec "$python" "$@"
