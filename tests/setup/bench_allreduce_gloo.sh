#!/usr/bin/env bash
# bench_allreduce_gloo.sh CASE [PROGRAM]: tests scripts/compare/bench_allreduce_gloo.py at tiny sizes.
#   usage      usage errors are found before anything starts
#   figures    the figures of a fake lockstep arrive in the JSON, and its wrong sums fail
#   sums       the built program beside Python's Gloo, three repetitions
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/scripts/lib.sh"
need_python_torch
program=${2:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# compared CODE LOCKSTEP ARG...: runs the comparison, which must exit with this code; its output goes to $folder/output.
compared() {
  local expected=$1 lockstep=$2 code=0
  shift 2
  "$python" "$root/scripts/compare/bench_allreduce_gloo.py" --lockstep "$lockstep" "$@" >"$folder/output" 2>&1 || code=$?
  cat "$folder/output"
  [ "$code" = "$expected" ] || { echo "ended with code $code, not with $expected"; exit 1; }
}

said() { grep -qF -- "$1" "$folder/output" || { echo "not said: $1"; exit 1; }; }

# check_json EXPRESSION...: Python expressions of `result` and `rows` that must be true.
check_json() {
  "$python" - "$folder/result.json" "$@" <<'PYTHON'
import json, sys
result = json.load(open(sys.argv[1]))
rows = result["rows"]
for expression in sys.argv[2:]:
    assert eval(expression), expression
PYTHON
}

# A fake lockstep, which sums 8 bytes over two processes in one second and reports three wrong elements.
stand_in() {
  cat >"$folder/lockstep" <<'LOCKSTEP'
#!/bin/bash
[ "$1" != --version ] || { echo "lockstep that stands in"; exit; }
[ "$1 $2 $3 $4 $5 $6" = "launch -n 2 -- bench allreduce" ] || exit 2
while [ $# -gt 1 ]; do
  [ "$1" != --json ] || json=$2
  shift
done
cat >"$json" <<JSON
{"bench": "allreduce", "checks": [{"name": "sums", "ok": false}], "tables": [{"name": "allreduce", "rows":
 [{"algorithm": "gloo", "bytes": 8, "processes": 2, "us": 1e6, "wrong": 3, "wire_bytes": 99}]}]}
JSON
exit 1
LOCKSTEP
  chmod +x "$folder/lockstep"
}

case_usage() {
  echo kept >"$folder/result.json"
  compared 7 "$folder/none" --json "$folder/result.json"
  said "exists, and --overwrite is not given"
  compared 2 "$folder/none" --processes 1
  said "--processes must be at least 2"
  compared 2 "$folder/none" --min-bytes 10
  said "takes whole floats of 4 bytes, got 10 bytes"
  compared 2 "$folder/none" --min-bytes 64 --max-bytes 32
  said "--min-bytes 64 is above --max-bytes 32"
}

case_figures() {
  stand_in
  compared 1 "$folder/lockstep" --min-bytes 8 --max-bytes 28 --repeat 3 --json "$folder/result.json"
  said "check sums: FAILED (12 wrong in lockstep, 0 in Python)"  # three elements and a failed check, three times
  said "bytes that a process of lockstep sends for a sum: 99 for 8"
  said "bench_allreduce_gloo: FAILED"
  check_json 'result["complete"]' '[row["repetitions"]["lockstep"] for row in rows] == [[1, 1, 1]] * 2' \
    'all(row["ratio"]["median"] > 1 for row in rows)' 'result["wire_bytes"] == {"8": 99}'
}

case_sums() {
  compared 0 "$program" --min-bytes 1024 --max-bytes 4096 --repeat 3 --json "$folder/result.json"
  said "bench_allreduce_gloo: OK"
  check_json '[row["what"] for row in rows] == [f"sum of {size} B, Python on {where}" for size in ("1,024", "4,096")
    for where in ("a core each", "any core")]' 'all(row["ratio"]["median"] > 0 for row in rows)' \
    'result["checks"][0]["ok"]' 'set(result["python"]) == {"kept", "free"}'
}

"case_$1"
