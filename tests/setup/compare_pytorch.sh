#!/usr/bin/env bash
# compare_pytorch.sh: tests the tables and goals of scripts/compare/compare_pytorch.py.
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
exec python3 "$(dirname "${BASH_SOURCE[0]}")/compare_pytorch_test.py"
