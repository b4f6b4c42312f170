#!/usr/bin/env bash
# with_python.sh SCRIPT ARGS...: runs a Python script; skipped where there is no python3.
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
exec python3 "$@"
