# Sourced by gpu_check.sh: the steps of each part.
# shellcheck shell=bash disable=SC2154  # gpu_check.sh and gpu_check_steps.sh set paths and flags

part_build() {
  if [ -n "$brought" ]; then
    note "left out: uses the build in $built"
    return
  fi
  check configure 180 bash -c 'source "$0/scripts/build.sh" && configure cuda' "$root" ||
    ended=${ended:-configure failed}
  check build 420 bash -c 'source "$0/scripts/build.sh" && build cuda "$1"' "$root" \
    "lockstep_cli compare_case cuda_tests"
}

# ctest's files name the folders of the machine that built; names those of this machine instead, once. By way of marks: a
# new name may hold an old one.
relocate() {
  local old_build old_root renames
  old_build=$(sed -n 's/^CMAKE_CACHEFILE_DIR:INTERNAL=//p' "$built/CMakeCache.txt")
  old_root=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$built/CMakeCache.txt")
  [ -n "$old_build" ] && [ -n "$old_root" ] && [ "$old_build $old_root" != "$built $root" ] || return 0
  renames="s|$old_build|\x01|g; s|$old_root|\x02|g; s|\x01|$built|g; s|\x02|$root|g"
  find "$built" -name '*.cmake' -exec sed -i "$renames" {} +
  sed -i "$renames" "$built/CMakeCache.txt"
}

have_build() {
  [ -x "$built/lockstep" ] ||
    check "find the build" 10 bash -c 'echo "no program in $0: run the part build"; exit 1' "$built" ||
    ended=${ended:-there is no build}
}

# gpu_tests RESULTS ARGUMENT...: runs ctest and counts. Where all tests were skipped, ctest says "100% tests passed";
# this fails.
gpu_tests() {
  local results=$1 code=0 all failed skipped
  shift
  rm -f "$results"
  ctest "$@" --output-junit "$results" || code=$?
  all=$(grep -c '<testcase ' "$results") || true
  failed=$(grep -c '<failure' "$results") || true
  skipped=$(grep -c '<skipped' "$results") || true
  if [ "$code" -eq 0 ] && [ "${skipped:-0}" -eq "${all:-0}" ]; then
    code=1
    sed -n 's/.*skipped: /skipped: /p' "$results" | sort | uniq -c
  fi
  echo "${all:-0} tests: ${failed:-0} failed, ${skipped:-0} skipped"
  return "$code"
}
export -f gpu_tests

check_tests() {
  check ctest 240 bash -c 'gpu_tests "$@"' gpu_tests "$work/tests.xml" --test-dir "$built" -L cuda --no-tests=error \
    --parallel 4 --timeout 120 --output-on-failure
}

# step_parity RUNNER MODEL: with the runner check or beside.
step_parity() {
  "$1" "one step of $2" 150 "$python" "$root/scripts/compare/step_parity.py" --lockstep "$built/lockstep" --model "$2"
}

# train_replicas NAME DEVICES FLAG...: a few steps; the replicas must agree.
train_replicas() {
  local name=$1 devices=$2
  shift 2
  check "$name" 60 "$built/lockstep" train --devices "$devices" --limit-steps 20 --limit-test 512 --check-sync 5 \
    --print-weights-hash "$@"
}

part_test() {
  local replicas model
  have_build
  [ -z "$brought" ] || relocate
  check_tests
  for model in lenet resnet18; do
    step_parity check "$model"
  done
  for replicas in 2 4; do
    train_replicas "train on cuda:0x$replicas" "cuda:0x$replicas"
  done
  sanitize memcheck racecheck
}

# The test programs of kernels: small enough for a tool that slows them down many times.
kernel_tests() {
  local program
  [ -d "$built/tests" ] || return 0
  find "$built/tests" -type f -perm -u+x -name '*kernel*_tests' | sort | while read -r program; do
    ! "$program" --list-for-ctest </dev/null | grep -qP '\t.*\bcuda\b' || echo "$program"
  done
}

# sanitize TOOL...: runs the GPU cases of the kernels' tests under compute-sanitizer, but for those of whole networks.
sanitize() {
  local tool program programs sanitizer why
  mapfile -t programs < <(kernel_tests)
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin type -P compute-sanitizer) || sanitizer=
  if [ -z "$sanitizer" ]; then
    note "compute-sanitizer is left out: it is not on this machine"
  elif [ ${#programs[@]} -eq 0 ]; then
    note "compute-sanitizer is left out: no test program with kernel in its name has cases for a GPU"
  elif may_run && ! limited "$(seconds_for 90)" "$sanitizer" "$built/lockstep" devices >"$work/sanitizer" 2>&1; then
    note "compute-sanitizer is left out, it does not work here: $(grep -m 1 -iE 'error|not' "$work/sanitizer")"
  else
    for program in "${programs[@]}"; do
      for tool in "$@"; do
        check "$tool $(basename "$program")" 120 "$sanitizer" --tool "$tool" --error-exitcode 9 "$program" \
          '[cuda]~[slow]~ResNet-18*'
      done
    done
  fi
}

part_compare() {
  have_build
  # First, before anything else has warmed up the machine.
  check "cold start lenet" 60 "$built/lockstep" train --devices cuda:0 --epochs 10
  check "cold start resnet18" 90 "$built/lockstep" train --devices cuda:0 --epochs 10 --recipe resnet18-pytorch \
    --precision bf16
  compare lenet 160 60
  compare resnet18 420 240
}

# compare_gpu RUNNER NAME MODEL SECONDS FLAG...: compare_gpu.py, which ends by itself before its limit.
compare_gpu() {
  local runner=$1 name=$2 model=$3 seconds=$4
  shift 4
  "$runner" "$name" "$seconds" "$python" "$root/scripts/compare/compare_gpu.py" \
    --compare-case "$built/scripts/compare_case" --model "$model" --seconds $(($(seconds_for "$seconds") - 10)) "$@"
}

# compare MODEL SECONDS COMPILE_SECONDS FLAG...
compare() {
  compare_gpu check "compare $1" "$1" "$2" --compile-seconds "$3" --json "$work/compare-$1.json" "${@:4}"
}

# train_ten_epochs RECIPE SEED
train_ten_epochs() {
  local flags=()
  [ "$1" = lenet-scratch ] || flags=(--precision bf16)
  check "$1 seed $2" 90 "$built/lockstep" train --devices cuda:0 --recipe "$1" --seed "$2" --epochs 10 \
    --metrics "$work/accuracy-$1-$2.jsonl" --overwrite ${flags[@]+"${flags[@]}"}
}

part_accuracy() {
  local recipe seed
  have_build
  for recipe in lenet-scratch resnet18-pytorch; do
    for seed in 0 1 2 3 4; do
      train_ten_epochs "$recipe" "$seed"
    done
  done
}

# ---- for a machine that is lent for some minutes

# The build that was brought along, or one that is made here when that does not start.
lease_build() {
  if [ -n "$brought" ]; then
    if check "start the brought build" 60 "$built/lockstep" --version; then
      relocate
      return
    fi
    [ -z "$ended" ] || return
    brought='' built=$root/build/cuda
  fi
  part_build
  have_build
}

# smoke MODEL FLAG...: does a step run, and can it be captured? Both ways must give the same weights.
smoke() {
  local model=$1 graph
  shift
  for graph in off on; do
    check "smoke $model, graph $graph" 60 "$built/lockstep" train --devices cuda:0 --deterministic --limit-steps 12 \
      --limit-test 512 --cuda-graph "$graph" --print-weights-hash "$@" ||
      ended=${ended:-"smoke $model, graph $graph" failed}
  done
  check "smoke $model, same weights" 10 bash -c \
    'grep -h "weights sha256" "$@" | tee /dev/stderr | sort | uniq -c | grep -q "^ *2 "' same \
    "$(log_of "smoke $model, graph off")" "$(log_of "smoke $model, graph on")"
}

# kernel_times MODEL PRECISION: every kernel of a replayed step, as a trace and as a table.
kernel_times() {
  local trace=$report/kernels-$1-$2.json steps=20
  check "kernels of $1 in $2" 60 bash -c '"$0" "${@:4}" && "$1" "$2/kernel_times.py" "$3" --steps '$steps \
    "$built/scripts/compare_case" "$python" "$root/scripts/compare" "$trace" --model "$1" \
    --precision "$2" --devices cuda:0 --threads "$(nproc)" --batch-size 256 --lr 0.1 --seed 0 \
    --data "${LOCKSTEP_DATA:-$debian_data}" --last-batch drop --warmup 100 --steps $steps --trace "$trace"
}

# The parts that tell most come first. torch.compile takes minutes, and mostly CPUs: its cache fills beside the tests.
part_lease() {
  local model bf16=(--recipe resnet18-pytorch --precision bf16)
  export TORCHINDUCTOR_CACHE_DIR=$work/inductor
  # The libraries are gigabytes: the first program would wait for them for a minute.
  beside "read torch's libraries" 90 bash -c \
    'find "$@" -name "*.so*" -type f -size +1M -print0 | xargs -0 -P 4 -n 1 cat >/dev/null' \
    read "$LOCKSTEP_BUILD_TORCH" "$(dirname "$LOCKSTEP_BUILD_TORCH")/nvidia"
  lease_build
  check machine 60 bash -c 'nvidia-smi; uname -r; nproc; free -g; "$0" devices' "$built/lockstep"
  smoke lenet
  smoke resnet18 "${bf16[@]}"

  for model in resnet18 lenet; do
    compare_gpu beside "compile $model ahead" "$model" 160 --fill-compile-cache
    step_parity beside "$model"
  done
  check_tests
  train_replicas "train on cuda:0x2" cuda:0x2
  train_replicas "train on cuda:0x4" cuda:0x4
  train_replicas "train resnet18 on cuda:0x2" cuda:0x2 "${bf16[@]}"
  join

  kernel_times resnet18 bf16
  kernel_times lenet fp32
  compare resnet18 250 100 --repeat 4
  train_ten_epochs resnet18-pytorch 0
  train_ten_epochs lenet-scratch 0
  compare lenet 110 40 --repeat 4
  check "bench allreduce" 60 "$built/lockstep" bench allreduce --devices cuda:0x2 --devices cuda:0x4 --max-bytes 64M \
    --iterations 20
  check "bench overlap" 40 "$built/lockstep" bench overlap --devices cuda:0x2
  sanitize memcheck
}
