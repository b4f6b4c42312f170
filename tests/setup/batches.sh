#!/usr/bin/env bash
# batches.sh BUILD: with LOCKSTEP_TEST_BATCH, ctest lists the same cases in fewer tests; those that are slow stay alone.
set -euo pipefail

# tests BATCH CTEST-ARGUMENT...: the names of the tests.
tests() {
  local batch=$1
  shift
  LOCKSTEP_TEST_BATCH=$batch ctest --test-dir "$build" --show-only "$@" | sed -n 's/^ *Test *#[0-9]*: //p'
}
build=$1
single=$(tests 1 | wc -l)
batched=$(tests 4)
cases=0
while read -r name; do
  others=0
  [[ $name =~ \ and\ ([0-9]+)\ more$ ]] && others=${BASH_REMATCH[1]}
  [ "$others" -le 3 ] || { echo "more than 4 cases: $name"; exit 1; }
  cases=$((cases + 1 + others))
done <<<"$batched"
[ "$cases" = "$single" ] || { echo "$single cases alone, $cases in batches of 4"; exit 1; }
[ "$(wc -l <<<"$batched")" -lt $((single / 2)) ] || { echo "batches of 4 are not much fewer than $single tests"; exit 1; }
! tests 4 -L '^(slow|cuda|cuda2)$' | grep -E ' and [0-9]+ more$' || { echo "a slow case is in a batch"; exit 1; }
