#!/usr/bin/env bash
# skips.sh TEST-PROGRAM: tests how lockstep's Catch2 main handles skipped cases and labels that need GPUs.
set -euo pipefail

expect() {  # expect CODE PATTERN COMMAND...
  local code=$1 pattern=$2 status=0 output
  shift 2
  output=$("$@" 2>&1) || status=$?
  if [ "$status" -ne "$code" ] || ! grep -q -- "$pattern" <<<"$output"; then
    printf 'expected exit code %s and "%s" from %s\nfound %s and:\n%s\n' "$code" "$pattern" "$*" "$status" "$output"
    exit 1
  fi
}

expect 77 'skipped: for the test of skipping' "$@" 'skips itself'
expect 77 'skipped: for the test of skipping' "$@" 'skips itself,passes'
expect 0 'skipped: for the test of skipping' env LOCKSTEP_TEST_CASES=2 "$@" 'skips itself,passes'
expect 77 'skipped: for the test of skipping' env LOCKSTEP_TEST_CASES=1 "$@" 'skips itself'
expect 1 '1 == 2' env LOCKSTEP_TEST_CASES=2 "$@" 'skips itself,fails'
expect 1 '1 == 2' "$@" 'skips itself,fails'
expect 0 'All tests passed' "$@" 'passes'
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
[ "$gpus" -ge 1 ] || expect 77 'skipped: needs a GPU: ' env LOCKSTEP_TEST_LABELS=slow,cuda "$@" passes
[ "$gpus" -ge 2 ] || expect 77 'skipped: needs ' env LOCKSTEP_TEST_LABELS=cuda2 "$@" passes
expect 0 'All tests passed' env LOCKSTEP_TEST_LABELS=cpu,slow "$@" passes
expect 1 'No test cases matched' "$@" 'no such case'
found=$("$@" --list-for-ctest)
expected='a name, with [brackets]; and "quotes" \ * ~	cpu,
a name, with [brackets]	cpu,slow,
--quiet is a flag of others	cpu,
~this is not an exclusion	cpu,'
if [ "$found" != "$expected" ]; then
  printf 'expected the list\n%s\nfound\n%s\n' "$expected" "$found"
  exit 1
fi
