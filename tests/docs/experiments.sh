#!/usr/bin/env bash
# experiments.sh PROGRAM: every command of docs/experiments.md at small size prints what the page shows.
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
exec python3 "$(dirname "${BASH_SOURCE[0]}")/../../scripts/experiments.py" check --program "$1"
