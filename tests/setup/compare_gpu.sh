#!/usr/bin/env bash
# compare_gpu.sh CASE [PROGRAM COMPARE_CASE]: runs the Python of gpu_check.sh on the CPU.
#   tables       tables, goals and the report of invented repetitions and steps
#   repetitions  the comparison itself, on 64 images, with a fake nvidia-smi; torch.compile gets too little time and must be
#                left out
#   device       a device that cannot be used: torch's or lockstep's reason is the last line
#   step         one step of LeNet beside double; and one in bfloat16, which must fail
#   kernels      kernel_times; on a CPU its trace has no kernels
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/scripts/lib.sh"
program=${2:-} compare_case=${3:-}

if [ "$1" = tables ]; then
  command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
  exec python3 "$root/tests/setup/compare_gpu_test.py"
fi
need_python_torch
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" "$root/tests/models/python_twin.py" --write-data "$folder"

case_repetitions() {
  printf '#!/bin/sh\necho "97, 512, 1980"\n' >"$folder/nvidia-smi"
  chmod +x "$folder/nvidia-smi"
  PATH=$folder:$PATH "$python" "$root/scripts/compare/compare_gpu.py" --compare-case "$compare_case" --device cpu \
    --data "$folder" --model lenet --batch-size 20 --repeat 2 --peak-size 64 --compile-seconds 0.5 \
    --json "$folder/result.json" | tee "$folder/output"
  grep -q '# torch.compile is left out: not warm after' "$folder/output"
  grep -q '| DDP, world 1 |' "$folder/output"
  "$python" "$root/scripts/compare/compare_gpu.py" --compare-case "$compare_case" --device cpu --data "$folder" \
    --model lenet --batch-size 20 --peak-size 64 --fill-compile-cache --seconds 0.5 |
    grep -q 'torch.compile is not warm after 1 s: its cache is incomplete'
  "$python" - "$folder/result.json" <<'PYTHON'
import json, sys
result = json.load(open(sys.argv[1]))
assert result["passed"] and len(result["cases"]) == 3, result
for case in result["cases"]:
    assert len(case["repetitions"]) == 2 and case["host_seconds"] > 0, case
    assert (case["busy"], case["clock_mhz"], case["memory_mb"]) == (97, 1980, 0), case
PYTHON
}
case_device() {
  local flag
  for flag in --repeat=2 --fill-compile-cache; do
    ! "$python" "$root/scripts/compare/compare_gpu.py" --compare-case "$compare_case" --device cuda:99 --data "$folder" \
      --model lenet $flag >"$folder/output" 2>&1 || exit 1
    tail -n 1 "$folder/output" | grep -E '^[A-Za-z.]*Error: .*(CUDA|NVIDIA)' || { cat "$folder/output" && exit 1; }
  done
  ! "$python" "$root/scripts/compare/step_parity.py" --lockstep "$program" --device cuda:99 --model lenet \
    --data "$folder" --batch-size 16 --seeds 1 >"$folder/output" 2>&1 || exit 1
  grep -v '^hint: ' "$folder/output" | tail -n 1 | grep '^lockstep: error: .*cuda:99' || { cat "$folder/output" && exit 1; }
}
case_kernels() {
  "$(dirname "$compare_case")/kernel_times" --model lenet --precision fp32 --devices cpu --batch-size 16 --lr 0.1 \
    --seed 0 --data "$folder" --warmup 1 --steps 2 --trace "$folder/trace.json" |
    grep -q '^lenet fp32 on cpu: [0-9.]* us per step'
  ! "$python" "$root/scripts/compare/kernel_times.py" "$folder/trace.json" --steps 2 2>"$folder/output" || exit 1
  grep -q 'trace.json has no kernels' "$folder/output"
}
case_step() {
  step() { "$python" "$root/scripts/compare/step_parity.py" --lockstep "$1" --device cpu --model lenet \
    --data "$folder" --batch-size 16 --seeds 1; }
  step "$program"
  # The same program, but in bfloat16 wherever no precision is asked for: with torch's kernels: lockstep's stay in fp32.
  local bf16='--precision bf16 --kernels torch'
  printf '#!/bin/bash\n[[ " $* " == *" --precision "* ]] || set -- "$@" %s\nexec %q "$@"\n' "$bf16" "$program" \
    >"$folder/rounding"
  chmod +x "$folder/rounding"
  ! step "$folder/rounding" || { echo "bfloat16 passes as fp32"; exit 1; }
}

"case_$1"
