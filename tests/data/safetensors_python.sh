#!/usr/bin/env bash
# safetensors_python.sh TEST-PROGRAM: Python's safetensors package reads a file that lockstep saved, with equal values.
# Skipped without the package.
source "$(dirname "$0")/need_safetensors.sh"

need_safetensors torch
LOCKSTEP_TEST_FILE=$folder/saved.safetensors "$@" 'a file for Python'
"$python" "$root/tests/reference/safetensors_file.py" --check "$folder/saved.safetensors"
# Negative control: a changed value is found.
cp "$folder/saved.safetensors" "$folder/changed.safetensors"
last=$(($(stat -c %s "$folder/changed.safetensors") - 1))  # the last of the flags, which is 0
printf '\1' | dd of="$folder/changed.safetensors" bs=1 seek="$last" conv=notrunc status=none
if "$python" "$root/tests/reference/safetensors_file.py" --check "$folder/changed.safetensors"; then
  echo "a changed value was not noticed"
  exit 1
fi
