#!/usr/bin/env bash
# safetensors_both_ways.sh TEST-PROGRAM: what Python's safetensors package writes, ours reads and saves, and the package
# finds the same in it. Skipped where LOCKSTEP_PYTHON, or else what `scripts/setup.sh --python` fetched, has no such
# package.
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/scripts/lib.sh"

if ! find_python safetensors numpy; then
  say "skipped: no Python with safetensors and numpy; LOCKSTEP_PYTHON=PATH names one"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
both_ways=$root/tests/data/safetensors_both_ways.py
"$python" "$both_ways" write "$folder"
LOCKSTEP_TEST_FOLDER=$folder "$@" 'files of Python are saved again'
"$python" "$both_ways" compare "$folder"
# The negative control: a changed value is found.
changed=$folder/$(basename "$(ls -S "$folder"/ours_* | head -1)")
printf '\x5a' | dd of="$changed" bs=1 seek="$(($(stat -c %s "$changed") - 1))" conv=notrunc status=none
if "$python" "$both_ways" compare "$folder"; then
  echo "a changed value was not noticed"
  exit 1
fi
