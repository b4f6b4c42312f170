#!/usr/bin/env bash
# scripts/gpu_check.sh [PART...] [--report DIR] [--built FOLDER]: builds and tests lockstep on a machine with an NVIDIA GPU,
# compares it with Python torch, and measures accuracy. Needs no network. Runs all parts, or those that are named:
#
#   build      configures and builds the program and all GPU tests in build/cuda, for the GPU of this machine
#   test       those tests; one step of each network beside its Python twin and beside double; two and four replicas on
#              one GPU; compute-sanitizer on the kernels' tests, where it works
#   compare    seconds from start to last line; then both networks beside Python torch (scripts/compare/compare_gpu.py)
#   accuracy   ten epochs of both networks with five seeds
#
#   --report DIR     folder for gpu_check.json, gpu_check.md and one log per part; default: build/gpu_check. A part that
#                    runs alone replaces its section of an existing report
#   --join DIR       adds the parts that only the report in DIR has; runs only the parts that are named
#   --built FOLDER   uses a build from another machine; the part build is left out
#   LOCKSTEP_BUILD_TORCH=PATH   LibTorch 2.11 or 2.15 with CUDA; default: the torch of Python
#   LOCKSTEP_PYTHON=PATH        a Python with torch; default: python3, or the one of scripts/setup.sh --python
#   LOCKSTEP_BUILD_BUNDLE=PATH  a bundle of scripts/setup.sh --bundle; default: the folder bundle of this checkout, if any
#   LOCKSTEP_GPU_SECONDS=540    seconds per part; each step has a share of them. A step that takes longer is cut off, and
#                               the next one runs
#
# Exit code: 0 when every step passed (goals of speed may be missed), 1 when one failed or there is no GPU, 2 usage.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"
export LOCKSTEP_BUILD_TESTS=on

# ---- steps

# limited SECONDS COMMAND...: runs a command; 124 when it was cut off. All its processes have ended then.
limited() {
  local code=0
  timeout --kill-after=10 "$@" &
  job=$!
  wait "$job" || code=$?
  # timeout made its own process group. Processes that ignored its signal are still there.
  kill -KILL -- "-$job" 2>/dev/null || true
  job=
  return "$code"
}

# seconds_for N: the limit of a step with N of the 540 seconds of a part; at most the time that is left.
seconds_for() {
  local limit=$((($1 * share + 539) / 540)) left=$((deadline - SECONDS))
  echo $((limit < left ? limit : left))
}

# check NAME SECONDS COMMAND...: runs one step of the part, also after failed ones; 0 when it passed.
check() {
  local name=$1 limit code=0 started=$EPOCHREALTIME log took
  limit=$(seconds_for "$2")
  shift 2
  log=$work/$((++steps)).log
  if [ "$limit" -gt 0 ]; then
    watched "$part: $name" "$log" limited "$limit" "$@" || code=$?
  else
    limit=0 code=124
    echo "the part's time was used up" >"$log"
  fi
  took=$(awk "BEGIN { printf \"%.2f\", $EPOCHREALTIME - $started }")
  printf 'step\t%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "$code" "$took" "$limit" "$log" "$*" >>"$work/record"
  # Only the end of the log: reports are sent around.
  { printf -- '== %s: %s\n' "$name" "$*" && tail -c 2000000 "$log" && printf '\n'; } >>"$report/$part.log"
  [ "$code" -ne 0 ] || return 0
  say "$part: $name failed with exit code $code: $*"
  tail -n 20 "$log" | sed 's/^/  | /' >&2
  return 1
}

note() {
  say "$part: $*"
  printf 'note\t%s\n' "$*" >>"$work/record"
  printf -- '== %s\n' "$*" >>"$report/$part.log"
}

# ---- parts

part_build() {
  if [ -n "$brought" ]; then
    note "left out: uses the build in $built"
    return
  fi
  check configure 180 bash -c 'source "$0/scripts/build.sh" && configure cuda' "$root" &&
    check build 420 bash -c 'source "$0/scripts/build.sh" && build cuda "lockstep_cli compare_case cuda_tests"' "$root"
}

# ctest's files name the folders of the machine that built; names those of this machine instead.
relocate() {
  local pair old
  for pair in "CMAKE_CACHEFILE_DIR:INTERNAL=$built" "CMAKE_HOME_DIRECTORY:INTERNAL=$root"; do
    old=$(sed -n "s/^${pair%%=*}=//p" "$built/CMakeCache.txt")
    [ -z "$old" ] || [ "$old" = "${pair#*=}" ] ||
      find "$built" -name '*.cmake' -exec sed -i "s|$old|${pair#*=}|g" {} +
  done
}

have_build() {
  [ -x "$built/lockstep" ] || check "find the build" 10 bash -c 'echo "no program in $0: run the part build"; exit 1' "$built"
}

part_test() {
  local tests replicas model
  have_build || return 0
  [ -z "$brought" ] || relocate
  check ctest 240 ctest --test-dir "$built" -L cuda --no-tests=error --parallel 4 --output-on-failure
  for model in lenet resnet18; do
    check "one step of $model" 120 "$python" "$root/scripts/compare/step_parity.py" --lockstep "$built/lockstep" \
      --model "$model"
  done
  for replicas in 2 4; do
    check "train on cuda:0x$replicas" 60 "$built/lockstep" train --devices "cuda:0x$replicas" --limit-steps 20 \
      --print-weights-hash
  done
  mapfile -t tests < <(kernel_tests)
  sanitize "${tests[@]}"
}

# The test programs of kernels: small enough for a tool that slows them down many times.
kernel_tests() {
  local program
  find "$built/tests" -type f -perm -u+x -name '*kernel*_tests' | sort | while read -r program; do
    ! "$program" --list-for-ctest </dev/null | grep -qP '\t.*\bcuda\b' || echo "$program"
  done
}

# sanitize PROGRAM...: runs their GPU cases under compute-sanitizer.
sanitize() {
  local tool program sanitizer
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin type -P compute-sanitizer) || sanitizer=
  if [ -z "$sanitizer" ]; then
    note "compute-sanitizer is left out: it is not on this machine"
  elif [ $# -eq 0 ]; then
    note "compute-sanitizer is left out: no test program with kernel in its name has cases for a GPU"
  elif ! limited 90 "$sanitizer" "$built/lockstep" devices >"$work/sanitizer" 2>&1; then
    note "compute-sanitizer is left out, it does not work here: $(grep -m 1 -iE 'error|not' "$work/sanitizer")"
  else
    for program in "$@"; do
      for tool in memcheck racecheck; do
        check "$tool $(basename "$program")" 120 "$sanitizer" --tool "$tool" --error-exitcode 9 "$program" '[cuda]~[slow]'
      done
    done
  fi
}

part_compare() {
  have_build || return 0
  # First, before anything else has warmed up the machine.
  check "cold start lenet" 60 "$built/lockstep" train --devices cuda:0 --epochs 10
  check "cold start resnet18" 90 "$built/lockstep" train --devices cuda:0 --epochs 10 --recipe resnet18-pytorch \
    --precision bf16
  compare lenet 160 60
  compare resnet18 420 240
}

# compare MODEL SECONDS COMPILE_SECONDS
compare() {
  check "compare $1" "$2" "$python" "$root/scripts/compare/compare_gpu.py" --compare-case "$built/scripts/compare_case" \
    --model "$1" --seconds $(($(seconds_for "$2") - 10)) --compile-seconds "$3" --json "$work/compare-$1.json"
}

part_accuracy() {
  local recipe seed flags
  have_build || return 0
  for recipe in lenet-scratch resnet18-pytorch; do
    flags=()
    [ "$recipe" = lenet-scratch ] || flags=(--precision bf16)
    for seed in 0 1 2 3 4; do
      check "$recipe seed $seed" 90 "$built/lockstep" train --devices cuda:0 --recipe "$recipe" --seed "$seed" \
        --epochs 10 --metrics "$work/accuracy-$recipe-$seed.jsonl" "${flags[@]}"
    done
  done
}

# ---- the whole

run_part() {
  part=$1 steps=0
  work=$(mktemp -d)
  share=${LOCKSTEP_GPU_SECONDS:-540}
  deadline=$((SECONDS + share))
  : >"$report/$part.log"
  : >"$work/record"
  "part_$part" || true  # failures are recorded
  "$python" "$root/scripts/compare/gpu_report.py" "$report" --part "$part" --record "$work" --torch "$LOCKSTEP_BUILD_TORCH" ||
    passed=no
  rm -rf "$work"
}

stop() {
  # All background jobs and their groups: the signal may come before this script knows a step's process, and before
  # timeout knows its own.
  local pid
  for pid in $(jobs -p); do
    kill -- "-$pid" "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
  exit "$1"
}

usage() {
  say "$1"
  show_help "${BASH_SOURCE[0]}" >&2
  exit 2
}

parse() {
  while [ $# -gt 0 ]; do
    case $1 in
      build | test | compare | accuracy) parts+=("$1") ;;
      --report | --built | --join)
        [ $# -ge 2 ] || usage "$1 needs a folder"
        case $1 in
          --report) report=$2 ;;
          --built) brought=$2 ;;
          --join) joined+=("$2") ;;
        esac
        shift
        ;;
      --help | -h)
        show_help "${BASH_SOURCE[0]}"
        exit
        ;;
      *) usage "unknown argument '$1'" ;;
    esac
    shift
  done
}

find_python_with_torch() {
  for python in ${LOCKSTEP_PYTHON:+"$LOCKSTEP_PYTHON"} python3 "$torch_full/bin/python"; do
    LOCKSTEP_PYTHON=$python find_python torch && return
  done
  die "python3 has no torch" "LOCKSTEP_PYTHON=<a Python with torch 2.11 or 2.15 and CUDA> scripts/gpu_check.sh"
}

# Sets torch and bundle. A program that was linked against a torch at another path needs LD_LIBRARY_PATH.
use_torch() {
  local site
  LOCKSTEP_BUILD_TORCH=${LOCKSTEP_BUILD_TORCH:-$("$python" -c \
    'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')}
  site=$(dirname "$LOCKSTEP_BUILD_TORCH")
  [ -z "$brought" ] || export LD_LIBRARY_PATH=$LOCKSTEP_BUILD_TORCH/lib:$site/nvidia/cu13/lib:$site/nvidia/nccl/lib:$site/nvidia/cudnn/lib:${LD_LIBRARY_PATH:-}
  LOCKSTEP_BUILD_BUNDLE=${LOCKSTEP_BUILD_BUNDLE:-$([ ! -d "$root/bundle" ] || echo "$root/bundle")}
  if [ -n "$LOCKSTEP_BUILD_BUNDLE" ]; then
    export LOCKSTEP_DATA=${LOCKSTEP_DATA:-$(realpath "$LOCKSTEP_BUILD_BUNDLE")/fashion-mnist}
  fi
  export LOCKSTEP_BUILD_TORCH LOCKSTEP_BUILD_BUNDLE
}

parts=() joined=() report=$root/build/gpu_check brought='' job='' work='' passed=yes
parse "$@"
[ ${#parts[@]} -gt 0 ] || [ ${#joined[@]} -gt 0 ] || parts=(build test compare accuracy)
[ -z "$brought" ] || [ -x "$brought/lockstep" ] || usage "--built $brought: there is no program in that folder"
find_python_with_torch
if [ ${#parts[@]} -gt 0 ]; then
  nvidia-smi -L >/dev/null 2>&1 || die "no NVIDIA GPU answers on this machine" "run this where nvidia-smi -L lists one"
fi
built=$(realpath -m "${brought:-$root/build/cuda}")
use_torch
mkdir -p "$report"
report=$(cd "$report" && pwd)
cd "$root"
trap 'stop 130' INT
trap 'stop 143' TERM
for part in ${parts[@]+"${parts[@]}"}; do
  run_part "$part"
done
for folder in ${joined[@]+"${joined[@]}"}; do
  "$python" "$root/scripts/compare/gpu_report.py" "$report" --join "$folder" || passed=no
done
cat "$report/gpu_check.md"
say "report: $report/gpu_check.json and gpu_check.md"
[ "$passed" = yes ]
