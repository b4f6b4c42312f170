#!/usr/bin/env bash
# safetensors_python.sh TEST-PROGRAM: Python's own safetensors package reads a file of ours, with equal values.
# Skipped where LOCKSTEP_PYTHON, or else what `scripts/setup.sh --python` fetched, has no such package.
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/scripts/lib.sh"

if ! find_python safetensors torch; then
  say "skipped: no Python with torch and safetensors; LOCKSTEP_PYTHON=PATH names one"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
LOCKSTEP_TEST_FILE=$folder/ours.safetensors "$@" 'a file for Python'
"$python" "$root/tests/reference/safetensors_file.py" --check "$folder/ours.safetensors"
# The negative control: a changed value is found.
cp "$folder/ours.safetensors" "$folder/changed.safetensors"
last=$(($(stat -c %s "$folder/changed.safetensors") - 1))  # the last of the flags, which is 0
printf '\1' | dd of="$folder/changed.safetensors" bs=1 seek="$last" conv=notrunc status=none
if "$python" "$root/tests/reference/safetensors_file.py" --check "$folder/changed.safetensors"; then
  echo "a changed value was not noticed"
  exit 1
fi
