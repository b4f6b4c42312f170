#!/usr/bin/env bash
# driver.sh PLANTED-FUZZ: the driver finds planted defects, and keeps the input that shows one.
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
# More memory than 16 MiB and twice the input. Only AddressSanitizer's builds count it.
printf '{token 789 heap' >"$folder/within"  # 11 MiB
printf '{token 789 123456789 heap' >"$folder/beyond"
expect 0 "$@" "$folder/within"
if grep -q __asan_init "${!#}"; then
  expect 134 "$@" "$folder/beyond"
  grep -q 'at most twice its size and 16 MiB' "$folder/output"
else
  expect 0 "$@" "$folder/beyond"
fi
expect 2 "$@" "$folder/nothing-here"
