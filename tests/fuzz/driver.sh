#!/usr/bin/env bash
# driver.sh PLANTED-FUZZ: the driver finds a planted defect, and keeps the input that shows it.
set -euo pipefail
unset LOCKSTEP_FUZZ_SECONDS
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/corpus"
printf '{"a":17}' >"$folder/corpus/small"
printf '"token"\n' >"$folder/dictionary"

# expect CODE COMMAND...: it ends with this code; its output goes to $folder/output.
expect() {
  local wanted=$1 code=0
  shift
  "$@" >"$folder/output" 2>&1 || code=$?
  [ "$code" = "$wanted" ] && return
  echo "exit code $code, $wanted was expected: $*"
  cat "$folder/output"
  exit 1
}

expect 0 "$@" --iterations 0 "$folder/corpus"
for seed in 1 2 3; do
  expect 1 "$@" --iterations 1000000 --seed "$seed" --dictionary "$folder/dictionary" --failure "$folder/failure" "$folder/corpus"
  grep -q "its input: $folder/failure" "$folder/output"
  # The input alone shows it again: by abort() or by an exception that may not leave the code.
  code=0
  "$@" "$folder/failure" >"$folder/output" 2>&1 || code=$?
  [ "$code" -ne 0 ] && grep -qE '1e308|bad_alloc' "$folder/output"
done
# A recipe for what is large.
printf '1 {token\n300000 [\n1 1e308\n' >"$folder/corpus/large.repeat"
expect 1 "$@" --iterations 0 --failure "$folder/failure" "$folder/corpus"
[ "$(stat -c %s "$folder/failure")" = 300011 ]
expect 2 "$@" "$folder/nothing-here"
