#!/usr/bin/env bash
# bench_1_vs_2.sh CASE [FOLDER]: tests scripts/bench_1_vs_2.sh, with the program of a build folder (quick) or a fake one.
source "$(dirname "$0")/stand_ins.sh"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }

compare() {  # compare CODE ARGUMENT...: its output goes to $work/output, the table alone to $work/table
  local code=$1 status=0
  shift
  : >"$calls"
  "$root/scripts/bench_1_vs_2.sh" --built "${built:-$work/bin}" "$@" >"$work/table" 2>"$work/output" </dev/null || status=$?
  cat "$work/table" >>"$work/output"
  [ "$status" -eq "$code" ] || fail "expected exit code $code, found $status"
}

# stand_in_lockstep GPUS [OK [CODE]]: a fake program whose benchmarks end at once: one device takes 4 s per epoch, two 2.5 s.
stand_in_lockstep() {
  local ok=${2:-true} code=${3:-0}
  { printf 'gpus=%q ok=%q code=%q\n' "$1" "$ok" "$code" && cat <<'STUB'; } | stand_in lockstep
if [ "$1" = devices ]; then
  printf 'devices\n  cpu     A CPU\n          2 cores\n'
  for ((i = 0; i < gpus; ++i)); do printf '  cuda:%d  A GPU\n          132 multiprocessors\n' "$i"; done
  printf '\n--devices takes\n  cpu     one\n  cuda:0, cuda    all\n  cuda:0x2        two\n  cuda:0,cuda:1   a list\n'
  exit
fi
echo "lockstep $*" >>"$calls"
[ "$code" -le 1 ] || exit "$code"
for file; do :; done
row() {
  printf '{"mode": "x", "devices": "x", "replicas": %d, "batch_size": %d, "ms": 1.0, "seconds_per_epoch": %s,' "$1" "$2" "$3"
  printf '"speedup": %s, "efficiency": %s, "exposed_sync": 2.5, "accuracy": null}' "$4" "$5"
}
cat >"$file" <<JSON
{"tables": [{"rows": [$(row 1 256 4.0 1.0 100.0), $(row 2 512 2.5 1.6 80.0)]}], "ok": $ok,
 "checks": [{"name": "replicas", "ok": $ok, "detail": "their weights differ"}],
 "environment": {"date": "today", "cpu": "A CPU", "cores": 2, "instructions": "AVX512",
                 "memory_bytes": 8589934592, "gpus": [], "libraries": {"lockstep": "0.1.0"}}}
JSON
exit "$code"
STUB
}

case_quick() {
  built=$1
  python3 - "$work" <<'PYTHON'
import random, struct, sys
random.seed(1)
for name, rows in (("train", 64), ("t10k", 20)):
    with open(f"{sys.argv[1]}/{name}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">4i", 0x803, rows, 28, 28) + random.randbytes(rows * 784))
    with open(f"{sys.argv[1]}/{name}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">2i", 0x801, rows) + bytes(row % 10 for row in range(rows)))
PYTHON
  compare 0 --quick --devices "cpu cpux2" --epochs 1 --data "$work" --markdown "$work/table.md" --json "$work/table.json"
  cmp "$work/table" "$work/table.md" || fail "the file is not what was printed"
  says "| model | setting | \`cpu\`, s/epoch | \`cpux2\`, s/epoch | speed-up | efficiency | test accuracy |" \
    "| LeNet | strong: batch 4, lr 0.2 -> batch 4, lr 0.2 |" "| ResNet-18 | weak: batch 4, lr 0.1 -> batch 8, lr 0.2 |" \
    "(1 epoch) | PyTorch 3.0 s, 0.83 | PyTorch 2.8 s, 0.84 |" \
    "(1 epoch) | PyTorch 14.2 s, 0.89; MXNet 13.2 s, 0.93 | PyTorch 9.3 s, 0.81; MXNet 6.9 s, 0.91 |" \
    "its times say nothing" "Checks: all 3 are OK." "Versions: lockstep "
  python3 - "$work/table.json" <<'PYTHON'
import json, sys
result = json.load(open(sys.argv[1]))
assert (result["format"], result["version"], result["ok"]) == ("lockstep one vs two", 1, True), result
assert result["devices"] == ["cpu", "cpux2"] and result["environment"]["cores"] > 0, result
lenet, resnet = result["models"]
assert (lenet["model"], lenet["setting"], lenet["batch_size"], lenet["lr"]) == ("LeNet", "strong", [4, 4], [.2, .2]), lenet
assert (resnet["model"], resnet["setting"], resnet["batch_size"], resnet["lr"]) == ("ResNet-18", "weak", [4, 8], [.1, .2])
for model in result["models"]:
    one, two = model["one"], model["two"]
    assert (one["replicas"], two["replicas"], one["repeats"], two["repeats"]) == (1, 2, 3, 3), model
    assert one["threads"] == two["threads"], model
    assert one["seconds_per_epoch"] > 0 and two["ms"] > 0 and model["speedup"] > 0, model
    assert abs(model["efficiency"] - 50 * model["speedup"]) < 1e-6 and model["exposed_sync"] >= 0, model
    for row in (one, two):
        assert abs(20 * row["accuracy"] - round(20 * row["accuracy"])) < 1e-9, row  # of 20 images
PYTHON
}
case_cpu() {
  stand_in_lockstep 0
  compare 0
  called 2 "--devices cpu --devices cpux2"
  called 1 "--recipe lenet-scratch --scaling strong --batch-size 256 --lr 0.2 --devices cpu --devices cpux2 --json"
  called 1 "--recipe resnet18-pytorch --scaling weak --batch-size 256 --lr 0.1 --devices cpu --devices cpux2 --repeat 3 --iterations 1"
  called 0 "--epochs"
  says "| LeNet | strong: batch 256, lr 0.2 -> batch 512, lr 0.2 | 4.00 | 2.50 | 1.60 x | 80 % | - |" \
    "Machine: A CPU, 2 cores, AVX512, 8.0 GiB memory." "Checks: all 2 are OK."
}
case_gpus() {
  stand_in_lockstep 2
  compare 0
  called 2 "--devices cuda:0 --devices cuda:0,cuda:1 --epochs 10"
  called 0 "--iterations"
  stand_in_lockstep 1
  compare 0 --epochs 0 --repeat 7
  called 2 "--devices cuda:0 --devices cuda:0x2 --repeat 7"
  called 0 "--epochs"
}
case_failed_check() {
  stand_in_lockstep 0 false 1
  compare 1 --json "$work/table.json" --markdown "$work/table.md"
  says "Checks: FAILED: LeNet, replicas: their weights differ; ResNet-18, replicas: their weights differ."
  grep -q '"ok": false' "$work/table.json" || fail "the JSON does not say that a check has failed"
}
case_failed_command() {  # its exit code is returned, and no file is written
  stand_in_lockstep 0 true 8
  compare 8 --json "$work/table.json" --markdown "$work/table.md"
  called 1 lockstep
  [ ! -e "$work/table.json" ] && [ ! -e "$work/table.md" ] || fail "a file of a run that failed"
}
case_refusals() {
  stand_in_lockstep 0
  touch "$work/old"
  compare 7 --json "$work/old"
  says "--json $work/old exists, and --overwrite is not given"
  compare 7 --markdown "$work/old"
  says "--markdown $work/old exists, and --overwrite is not given"
  compare 7 --markdown "$work/none/table.md"
  says "a folder that does not exist: $work/none"
  compare 2 --markdown "$work/new" --json "$work/new"
  says "--markdown and --json name the same file"
  compare 2 --devices "cpu cpux3"
  says "must be one device and two, as in 'cpu cpux2', got 'cpu cpux3'"
  compare 2 --devices cpu
  compare 2 --repeat 2
  says "must be at least 3, got 2"
  compare 2 --epochs -1
  called 0 lockstep
  [ ! -s "$work/old" ] && [ ! -e "$work/new" ] || fail "a file was written"
  compare 0 --json "$work/old" --overwrite
  [ -s "$work/old" ] || fail "the file was not replaced"
  compare 0 --devices "cuda:1 cuda:0,cuda:1"
  called 2 "--devices cuda:1 --devices cuda:0,cuda:1"
}

"case_$1" "${2:-}"
