#!/usr/bin/env bash
# scripts/gpu_check.sh [DIR]: checks lockstep on a machine with an NVIDIA GPU; needs no network.
#
# Builds everything with CUDA in build/cuda, runs the cuda tests, and trains two epochs on one replica (cuda:0) and on
# two (cuda:0x2). Writes gpu_check.json, gpu_check.txt and the log of each step to DIR ($OUT, or gpu_check in build).
#
#   LOCKSTEP_BUILD_TORCH=PATH   LibTorch 2.11 with CUDA; default: the torch of python3
#   LOCKSTEP_BUILD_BUNDLE=PATH  what scripts/setup.sh --bundle made; default: the folder bundle of this checkout, if any
#
# Exit code: 0 when every step passed, 1 when one failed or there is no GPU.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"

names=() commands=() codes=() seconds=()

find_torch() {
  python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null
}

gpu() { nvidia-smi --query-gpu="$1" --format=csv,noheader | head -n 1; }

# check NAME COMMAND...: runs one step of the check, whatever became of those before.
check() {
  local name=$1 started=$EPOCHREALTIME code=0
  shift
  watched "$name" "$report/$name.log" "$@" || code=$?
  names+=("$name")
  commands+=("$*")
  codes+=("$code")
  seconds+=("$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $started }")")
  [ "$code" -eq 0 ] && return
  say "$name failed with exit code $code: $*"
  tail -n 20 "$report/$name.log" | sed 's/^/  | /' >&2
}

json_text() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  printf '"%s"' "${text//[[:cntrl:]]/ }"
}

# What a step's log comes to: ctest's verdict, or the last line, which in a run has its accuracy and time.
last_line() { grep -E '^[0-9]+% tests passed' "$report/$1.log" || tail -n 1 "$report/$1.log"; }

write_json() {
  local i separator=
  printf '{\n'
  for i in "${!facts[@]}"; do
    printf '  %s: %s,\n' "$(json_text "${facts[i]%%=*}")" "$(json_text "${facts[i]#*=}")"
  done
  printf '  "passed": %s,\n  "steps": [' "$passed"
  for i in "${!names[@]}"; do
    printf '%s\n    {"name": %s, "exit_code": %s, "seconds": %s, "command": %s, "last_line": %s}' "$separator" \
      "$(json_text "${names[i]}")" "${codes[i]}" "${seconds[i]}" "$(json_text "${commands[i]}")" \
      "$(json_text "$(last_line "${names[i]}")")"
    separator=,
  done
  printf '\n  ]\n}\n'
}

write_text() {
  local i
  for i in "${facts[@]}"; do
    printf '%-8s %s\n' "${i%%=*}" "${i#*=}"
  done
  printf '\n%-10s %5s %9s  %s\n' step exit seconds 'last line'
  for i in "${!names[@]}"; do
    printf '%-10s %5s %9s  %s\n' "${names[i]}" "${codes[i]}" "${seconds[i]}" "$(last_line "${names[i]}")"
  done
}

if [ "${1:-}" = --help ]; then
  show_help "${BASH_SOURCE[0]}"
  exit
fi
nvidia-smi -L >/dev/null 2>&1 || die "no NVIDIA GPU answers on this machine" "run this where nvidia-smi -L lists one"
LOCKSTEP_BUILD_TORCH=${LOCKSTEP_BUILD_TORCH:-$(find_torch || true)}
[ -n "$LOCKSTEP_BUILD_TORCH" ] || die "python3 has no torch, and LOCKSTEP_BUILD_TORCH is not set" \
  "LOCKSTEP_BUILD_TORCH=<site-packages/torch or libtorch folder> scripts/gpu_check.sh"
LOCKSTEP_BUILD_BUNDLE=${LOCKSTEP_BUILD_BUNDLE:-$([ ! -d "$root/bundle" ] || echo "$root/bundle")}
if [ -n "$LOCKSTEP_BUILD_BUNDLE" ]; then
  export LOCKSTEP_DATA=${LOCKSTEP_DATA:-$(realpath "$LOCKSTEP_BUILD_BUNDLE")/fashion-mnist}
fi
export LOCKSTEP_BUILD_TORCH LOCKSTEP_BUILD_BUNDLE

report=${1:-${OUT:-$root/build/gpu_check}}
mkdir -p "$report"
report=$(cd "$report" && pwd)
cd "$root"
program=build/cuda/lockstep

check build build cuda all
check tests ctest --preset cuda -L cuda
check devices "$program" devices
check one "$program" train --devices cuda:0 --epochs 2 --metrics "$report/one.jsonl" --overwrite
check two "$program" train --devices cuda:0x2 --epochs 2 --metrics "$report/two.jsonl" --overwrite

passed=true
for code in "${codes[@]}"; do
  [ "$code" -eq 0 ] || passed=false
done
facts=("gpu=$(gpu name)" "memory=$(gpu memory.total)" "driver=$(gpu driver_version)" "host=$(uname -n)"
  "torch=$LOCKSTEP_BUILD_TORCH" "commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)" "date=$(date -u +%FT%TZ)")
write_json >"$report/gpu_check.json"
write_text | tee "$report/gpu_check.txt"
say "report: $report/gpu_check.json and gpu_check.txt"
[ "$passed" = true ]
