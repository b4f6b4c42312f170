#!/usr/bin/env bash
# safetensors_both_ways.sh TEST-PROGRAM: lockstep reads files of Python's safetensors package and saves them, and the
# package finds the same contents in them. Skipped without the package.
source "$(dirname "$0")/need_safetensors.sh"

need_safetensors numpy
both_ways=$root/tests/data/safetensors_both_ways.py
"$python" "$both_ways" write "$folder"
LOCKSTEP_TEST_FOLDER=$folder "$@" 'files of Python are saved again'
"$python" "$both_ways" compare "$folder"
# Negative control: a changed value is found.
changed=$folder/$(basename "$(ls -S "$folder"/lockstep_* | head -1)")
printf '\x5a' | dd of="$changed" bs=1 seek="$(($(stat -c %s "$changed") - 1))" conv=notrunc status=none
if "$python" "$both_ways" compare "$folder"; then
  echo "a changed value was not noticed"
  exit 1
fi
