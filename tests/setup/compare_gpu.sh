#!/usr/bin/env bash
# compare_gpu.sh CASE [PROGRAM CONTENDER]: the Python that gpu_check.sh runs, on the processor.
#   tables   tables, goals and the report of made-up turns and steps
#   turns    the comparison itself, on 64 images, with an nvidia-smi that stands in; torch.compile gets too little time,
#            is left out, and named
#   step     one step of LeNet beside double; and one in bfloat16, which must be found out
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/scripts/lib.sh"
program=${2:-} contender=${3:-}

if [ "$1" = tables ]; then
  command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
  exec python3 "$root/tests/setup/compare_gpu_test.py"
fi
need_python_torch
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" "$root/tests/models/python_twin.py" --write-data "$folder"

case_turns() {
  printf '#!/bin/sh\necho "97, 512, 1980"\n' >"$folder/nvidia-smi"
  chmod +x "$folder/nvidia-smi"
  PATH=$folder:$PATH "$python" "$root/scripts/compare_gpu.py" --contender "$contender" --device cpu --data "$folder" --model lenet \
    --batch-size 20 --turns 2 --peak-size 64 --compile-seconds 0.5 --json "$folder/result.json" | tee "$folder/output"
  grep -q '# torch.compile is left out: not warm after' "$folder/output"
  grep -q '| DDP, world 1 |' "$folder/output"
  "$python" - "$folder/result.json" <<'PYTHON'
import json, sys
result = json.load(open(sys.argv[1]))
assert result["passed"] and len(result["contenders"]) == 3, result
for contender in result["contenders"]:
    assert len(contender["turns"]) == 2 and contender["host_seconds"] > 0, contender
    assert (contender["busy"], contender["clock_mhz"], contender["memory_mb"]) == (97, 1980, 0), contender
PYTHON
}
case_step() {
  step() { "$python" "$root/scripts/step_parity.py" --lockstep "$1" --device cpu --model lenet --data "$folder" \
    --batch-size 16 --seeds 1; }
  step "$program"
  # The same program, but in bfloat16 wherever no precision is asked for: by torch's kernels, since ours stay in fp32.
  local bf16='--precision bf16 --kernels torch'
  printf '#!/bin/bash\n[[ " $* " == *" --precision "* ]] || set -- "$@" %s\nexec %q "$@"\n' "$bf16" "$program" \
    >"$folder/rounding"
  chmod +x "$folder/rounding"
  ! step "$folder/rounding" || { echo "bfloat16 passes as fp32"; exit 1; }
}

"case_$1"
