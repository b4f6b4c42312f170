#!/usr/bin/env bash
# compare_bench.sh CASE [BUILD_FOLDER]: tests scripts/compare_bench.sh at tiny sizes.
#   tables     ratios, checks and the table of invented repetitions
#   python     the checks of the Python side
#   usage      usage errors are found before anything starts
#   no_torch   skipped without Python torch
#   figures    the figures of a fake lockstep arrive in the JSON, and its wrong sums fail
#   stopped    a signal keeps the results so far
#   failed     a failing lockstep is named
#   matmuls, allreduce, step     one part with the built program, three repetitions
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/scripts/lib.sh"
built=${2:-}

if [ "$1" = tables ]; then
  command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
  exec python3 "$root/tests/setup/compare_bench_test.py"
fi
need_python_torch
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# compared CODE ARG...: runs the comparison, which must exit with this code; its output goes to $folder/output.
compared() {
  local expected=$1 code=0
  shift
  "$root/scripts/compare_bench.sh" --built "$folder" "$@" >"$folder/output" 2>&1 || code=$?
  cat "$folder/output"
  [ "$code" = "$expected" ] || { echo "ended with code $code, not with $expected"; exit 1; }
}

said() { grep -qF -- "$1" "$folder/output" || { echo "not said: $1"; exit 1; }; }

# stand_in COMMAND: a fake lockstep that sums 8 bytes in one second and reports three wrong elements. From its third run on
# it runs COMMAND.
stand_in() {
  cat >"$folder/lockstep" <<LOCKSTEP
#!/bin/bash
[ "\$1" != --version ] || { echo "lockstep that stands in"; exit; }
[ "\$1 \$2" = "bench allreduce" ] || exit 2
echo run >>"$folder/runs"
[ "\$(wc -l <"$folder/runs")" -lt 3 ] || { $1; }
while [ \$# -gt 1 ]; do
  [ "\$1" != --json ] || json=\$2
  shift
done
cat >"\$json" <<JSON
{"bench": "allreduce", "checks": [{"name": "sums", "ok": false}], "tables": [{"name": "allreduce", "rows":
 [{"algorithm": "two_shot", "bytes": 8, "us": 1e6, "wrong": 3}]}]}
JSON
exit 1
LOCKSTEP
  chmod +x "$folder/lockstep"
}

# check_json EXPRESSION...: Python expressions of `result` and `rows` that must be true.
check_json() {
  "$python" - "$folder/result.json" "$@" <<'PYTHON'
import json, statistics, sys
result = json.load(open(sys.argv[1]))
rows = result["rows"]
assert all(row["unit"] == "s" and min(row["repetitions"]["lockstep"] + row["repetitions"]["python"]) > 0 for row in rows), rows
for row in rows:
    ratios = [a / b for a, b in zip(row["repetitions"]["lockstep"], row["repetitions"]["python"])]
    expected = statistics.median(ratios) if len(ratios) > 2 else None
    assert (row["ratio"] and row["ratio"]["median"]) == expected, row
    for side in ("lockstep", "python"):
        assert row[side]["median"] == statistics.median(row["repetitions"][side]), row
for key in ("command", "lockstep", "torch", "cpu", "cores"):
    assert key in result["environment"], key
for expression in sys.argv[2:]:
    assert eval(expression), expression
PYTHON
}

case_python() { "$python" "$root/tests/setup/baseline_bench_test.py"; }

case_usage() {
  stand_in "exit 1"
  echo kept >"$folder/result.json"
  compared 7 --json "$folder/result.json"
  said "exists, and --overwrite is not given"
  [ "$(cat "$folder/result.json")" = kept ]
  compared 2 --parts matmuls,nonsense
  said "knows matmuls, allreduce, step; got nonsense"
  compared 2 --bytes 8,10
  said "takes whole floats of 4 bytes, got 10 bytes"
  compared 2 --repeat 0
  said "must be at least 1, got 0"
  [ ! -e "$folder/runs" ] || { echo "something was run"; exit 1; }
  rm "$folder/lockstep"
  compared 1
  said "lockstep is missing"
}

case_no_torch() {
  stand_in "exit 1"
  LOCKSTEP_PYTHON=/bin/false compared 77
  said "skipped: no Python torch to compare with"
}

case_figures() {
  stand_in true
  compared 1 --parts allreduce --bytes 8 --repeat 3 --json "$folder/result.json"
  said "check sums of 8 B: FAILED (9 wrong in lockstep, 0 in Python)"
  said "compare_bench: FAILED"
  check_json 'result["complete"]' '[row["repetitions"]["lockstep"] for row in rows] == [[1, 1, 1]] * 2' \
    'result["checks"] == [dict(what="sums of 8 B", lockstep=9, python=0, ok=False)]'
  [ "$(wc -l <"$folder/runs")" = 3 ] || { echo "three repetitions are not three runs"; exit 1; }
}

case_stopped() {
  stand_in 'kill -TERM $PPID; exec sleep 600'
  compared 143 --parts allreduce --bytes 8 --repeat 5 --json "$folder/result.json"
  said "(stopped before the end)"
  check_json 'not result["complete"]' 'len(rows) == 2' 'all(row["repetitions"]["lockstep"] == [1, 1] for row in rows)'
}

case_failed() {
  stand_in 'exit 5'
  compared 1 --parts allreduce --bytes 8
  said "error: lockstep bench allreduce ended with code 5"
}

# part NAME FLAG...: compares one part with the built program; both sides must be exact.
part() {
  local name=$1
  shift
  ln -s "$built/lockstep" "$folder/lockstep"
  compared 0 --parts "$name" --repeat 3 --json "$folder/result.json" "$@"
  said "compare_bench: OK"
}

case_matmuls() {
  part matmuls --size 40 --iterations 6
  check_json 'len(rows) == 2' 'rows[0]["what"] == "6 matrix products, 40 x 40, one replica"' 'result["checks"][0]["ok"]' \
    '" bench overlap --devices cpux2 --size 40 --iterations 6 " in result["lockstep"]["overlap"]'
}

case_allreduce() {
  part allreduce --bytes 8,4004
  check_json 'len(rows) == 4' '[check["what"] for check in result["checks"]] == ["sums of 8 B", "sums of 4,004 B"]' \
    'all(check["ok"] for check in result["checks"])' 'set(result["python"]) == {"2 processes, kept", "2 processes, free"}'
}

case_step() {
  "$python" "$root/tests/models/python_twin.py" --write-data "$folder"
  part step --batch-size 20 --steps 2 --data "$folder"
  check_json '[row["what"] for row in rows] == [f"step of LeNet, 20 images, {name}" for name in
    ("channels_last", "contiguous")]' 'rows[0]["repetitions"]["lockstep"] == rows[1]["repetitions"]["lockstep"]'
}

"case_$1"
