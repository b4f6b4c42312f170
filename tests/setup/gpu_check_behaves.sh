#!/usr/bin/env bash
# gpu_check_behaves.sh CASE [BUILD]: runs scripts/gpu_check.sh in a copy of the scripts, with a fake GPU, build,
# tests, program and Python torch, and checks what it runs, reports and leaves behind. lease_commands takes the
# programs of BUILD.
source "$(dirname "$0")/stand_ins.sh"
tree=$work/tree report=$work/report
if ! python3=$(type -P python3); then
  echo "skipped: the report is made by python3, which is not here"
  exit 77
fi

mkdir -p "$tree/bundle/fashion-mnist" "$work/torch/lib" "$work/nvidia"
cp -r "$root/scripts" "$tree/"
echo "__version__ = '2.11.0+cu130'" >"$work/torch/version.py"
stand_in nvidia-smi <<<'case $* in *=name*) echo "Some \"GPU\" | 1" ;; *=driver*) echo 580.1 ;; *) echo 1980 MHz ;; esac'
stand_in cmake <<<"echo \"cmake \$*\" >>\"\$calls\"; mkdir -p '$tree/build/cuda' && touch '$tree/build/cuda/build.ninja'"
# ctest_runs COUNT SKIPPED: what ctest reports.
ctest_runs() {
  stand_in ctest <<STUB
echo "ctest \$*" >>"\$calls"
echo "100% tests passed, 0 tests failed out of $1"
while [ "\$1" != --output-junit ]; do shift; done
for ((i = 0; i < $1; i++)); do
  echo '<testcase name="a"'
  [ \$i -ge $2 ] || echo '<skipped message="SKIP"/><system-out>skipped: needs a GPU: no NVIDIA driver</system-out>'
done >"\$2"
STUB
}
ctest_runs 9 1
# A Python that runs only scripts that need no torch.
stand_in python <<STUB
echo "python \$*" >>"\$calls"
case \$* in
  *gpu_report.py*) exec "$python3" "\$@" ;;
  *submodule_search_locations*) echo "$work/torch" ;;
  *compare_gpu.py*) echo "compared" ;;
  *step_parity.py*) echo "the same step" ;;
esac
STUB
export LOCKSTEP_PYTHON=$work/bin/python

# program: the script on stdin is the program that was built.
program() {
  mkdir -p "$tree/build/cuda/scripts" "$tree/build/cuda/tests"
  { printf '#!/bin/bash\ncalls=%q work=%q\necho "lockstep $*" >>"$calls"\n' "$calls" "$work" && cat; } \
    >"$tree/build/cuda/lockstep"
  chmod +x "$tree/build/cuda/lockstep"
}
working_program() { program <<<'echo "test acc: 0.80, $LOCKSTEP_DATA"'; }

gpu_check() {  # gpu_check CODE ARGUMENT...: its output goes to $work/output
  local code=$1 status=0
  shift
  "$tree/scripts/gpu_check.sh" --report "$report" "$@" >"$work/output" 2>&1 </dev/null || status=$?
  [ "$status" -eq "$code" ] || fail "expected exit code $code, found $status"
}

# in_report EXPRESSION TEXT: the value of a Python expression of the report `r` must be this text.
in_report() {
  local found
  found=$("$python3" -c 'import json, sys; r = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' \
    "$report/gpu_check.json" "$1") || fail "the report has no $1"
  [ "$found" = "$2" ] || fail "expected \"$2\" of $1, found \"$found\""
}

# gone PID: waits until the process has ended.
gone() {
  local last=$((SECONDS + 30))
  while kill -0 "$1" 2>/dev/null; do
    [ "$SECONDS" -lt "$last" ] || fail "a process was left behind"
  done
}

case_no_gpu() {
  stand_in nvidia-smi <<<'echo "NVIDIA-SMI has failed"; exit 9'
  gpu_check 1
  says "no NVIDIA GPU answers on this machine" "fix: run this where nvidia-smi -L lists one"
  [ ! -e "$report" ] || fail "a report was begun"
}
case_no_torch() {
  stand_in python <<<'exit 1'
  stand_in python3 <<<'exit 1'
  XDG_CACHE_HOME=$work/cache gpu_check 1
  says "python3 has no torch" "fix: LOCKSTEP_PYTHON="
}
case_usage() {
  gpu_check 2 tests
  says "unknown argument 'tests'" "scripts/gpu_check.sh [PART...]"
  gpu_check 2 test --built "$work"
  says "there is no program in that folder"
  gpu_check 2 --built
  says "--built needs a folder"
}
case_all_parts() {
  working_program
  gpu_check 0
  called 1 "-DLOCKSTEP_BUILD_TORCH=$work/torch -DLOCKSTEP_BUILD_BUNDLE=$tree/bundle"
  called 1 "--target lockstep_cli compare_case cuda_tests"
  called 1 "ctest --test-dir $tree/build/cuda -L cuda"
  called 1 "step_parity.py --lockstep $tree/build/cuda/lockstep --model resnet18"
  called 1 "--devices cuda:0x4 --limit-steps 20 --limit-test 512 --check-sync 5 --print-weights-hash"
  called 1 "compare_gpu.py --compare-case $tree/build/cuda/scripts/compare_case --model lenet"
  called 5 "--recipe resnet18-pytorch --seed"
  in_report 'list(r["parts"])' "['build', 'test', 'compare', 'accuracy']"
  in_report 'r["passed"]' True
  in_report 'r["parts"]["test"]["facts"]["gpu"]' 'Some "GPU" | 1'
  in_report 'r["parts"]["test"]["facts"]["torch"]' 2.11.0+cu130
  in_report 'r["parts"]["test"]["steps"][0]["last_line"]' '9 tests: 0 failed, 1 skipped'
  in_report 'r["parts"]["compare"]["steps"][0]["last_line"]' "test acc: 0.80, $tree/bundle/fashion-mnist"
  says "## accuracy: passed" "report: $report/gpu_check.json"
  grep -q '^| P6 | LeNet, cold start' "$report/gpu_check.md" || fail "no goals in the Markdown"
  grep -q '1980 MHz' "$report/clocks.csv" || fail "no clocks"
  [ "$(find "$report" -type f | wc -l)" -le 8 ] || fail "more than 8 files"
}
case_failed_step() {
  program <<<'[[ $* != *cuda:0x2* ]] || { echo "no x2"; exit 5; }; echo "test acc: 0.80"'
  gpu_check 1 test
  says "train on cuda:0x2 failed with exit code 5" "  | no x2" "## test: FAILED"
  called 1 "--devices cuda:0x4"
  in_report '[s["exit_code"] for s in r["parts"]["test"]["steps"]]' "[0, 0, 0, 5, 0]"
  in_report 'r["passed"]' False
  grep -q '^no x2$' "$report/test.log" || fail "the part's log lacks the step's"
}
case_cut_off() {  # 60 of 540 s are 3 of 27; a child that ignores signals ends too
  program <<'STUB'
[[ $* == *cuda:0x2* ]] || { echo "test acc: 0.80"; exit; }
(trap '' TERM; echo $BASHPID >"$work/child"; exec sleep 1000) &
echo "under way"
wait
STUB
  LOCKSTEP_GPU_SECONDS=27 gpu_check 1 test
  says "cut off after 3 s"
  called 1 "--devices cuda:0x4"
  in_report '[s["cut_off"] for s in r["parts"]["test"]["steps"]]' "[False, False, False, True, False]"
  in_report 'r["parts"]["test"]["steps"][3]["last_line"]' "under way"
  gone "$(cat "$work/child")"
}
case_all_skipped() {
  working_program
  ctest_runs 3 3
  gpu_check 1 test
  in_report 'r["parts"]["test"]["steps"][0]["last_line"]' '3 tests: 0 failed, 3 skipped'
  says "skipped: needs a GPU: no NVIDIA driver"
}
case_share_used_up() {  # by steps that hang; their limits are whole seconds, and more than the three of the part
  program <<<'exec sleep 1000'
  stand_in ctest <<<'sleep 1000'
  LOCKSTEP_GPU_SECONDS=3 gpu_check 1 test
  in_report '[(s["exit_code"], s["cut_off"]) for s in r["parts"]["test"]["steps"][:1]]' "[(124, True)]"
  in_report 'r["parts"]["test"]["not_run"][-1]' "{'name': 'train on cuda:0x4', 'why': 'the time was used up'}"
  called 0 "--devices cuda:0x4"
}
case_stopped() {
  program <<<'echo $$ >"$work/running"; exec sleep 1000'
  "$tree/scripts/gpu_check.sh" accuracy --report "$report" >"$work/output" 2>&1 </dev/null &
  until [ -s "$work/running" ]; do :; done
  kill "$!"
  local status=0
  wait "$!" || status=$?
  [ "$status" -eq 143 ] || fail "expected exit code 143, found $status"
  gone "$(cat "$work/running")"
}
case_part_alone() {
  program <<<'exit 3'
  gpu_check 1 accuracy
  working_program
  gpu_check 0 compare accuracy
  called 0 ctest
  in_report 'list(r["parts"])' "['compare', 'accuracy']"
  in_report 'r["passed"]' True
  mv "$report" "$work/other"
  gpu_check 0 test
  stand_in nvidia-smi <<<'exit 9'  # joining takes no GPU
  gpu_check 0 --join "$work/other"
  in_report 'list(r["parts"])' "['test', 'compare', 'accuracy']"
}
case_no_build() {
  gpu_check 1 test accuracy
  says "run the part build"
  in_report 'len(r["parts"]["accuracy"]["steps"])' 1
  in_report 'r["parts"]["accuracy"]["not_run"][0]' "{'name': 'lenet-scratch seed 0', 'why': 'there is no build'}"
}
case_brought_along() {  # the folders of the machine that built are part of the names here
  local built=$work/brought ctest_file
  program <<<'echo "libraries: $LD_LIBRARY_PATH"'
  mv "$tree/build/cuda" "$built"
  ctest_file=$built/tests/CTestTestfile.cmake
  printf 'CMAKE_CACHEFILE_DIR:INTERNAL=%s\nCMAKE_HOME_DIRECTORY:INTERNAL=%s\n' "$work/build/cuda" "$work" \
    >"$built/CMakeCache.txt"
  echo "include(\"$work/cmake/List.cmake\") add_test(a \"$work/build/cuda/tests/a\")" >"$ctest_file"
  gpu_check 0 build test --built "$built"
  called 0 cmake
  called 1 "ctest --test-dir $built"
  says "build: left out: uses the build in $built"
  gpu_check 0 test --built "$built"  # once more
  [ "$(cat "$ctest_file")" = "include(\"$tree/cmake/List.cmake\") add_test(a \"$built/tests/a\")" ] ||
    fail "ctest looks elsewhere: $(cat "$ctest_file")"
  in_report 'r["parts"]["test"]["steps"][3]["last_line"].split(":")[1]' " $work/torch/lib"
}
case_sanitizer() {
  working_program
  stand_in some_kernel_tests <<<'printf "a case\\tslow,cuda,\\n"'
  stand_in host_kernel_tests <<<'printf "a case without cuda\\tcpu,\\n"'
  mv "$work/bin/"*_kernel_tests "$tree/build/cuda/tests/"
  stand_in compute-sanitizer <<<'echo "compute-sanitizer $*" >>"$calls"; [ "$2" != racecheck ] || exit 9'
  gpu_check 1 test
  called 1 "--tool memcheck --error-exitcode 9 $tree/build/cuda/tests/some_kernel_tests [cuda]~[slow]~ResNet-18*"
  called 0 host_kernel_tests
  says "racecheck some_kernel_tests failed with exit code 9"
  stand_in compute-sanitizer <<<'echo "Error: Device not supported"; exit 1'
  gpu_check 0 test
  says "compute-sanitizer is left out, it does not work here: Error: Device not supported"
}


# ---- the lease

lease_steps=("read torch's libraries" "start the brought build" machine "smoke lenet, graph off" "smoke lenet, graph on" "smoke lenet, same weights"
  "smoke resnet18, graph off" "smoke resnet18, graph on" "smoke resnet18, same weights"
  "compile resnet18 ahead" "compile lenet ahead" "one step of lenet" "one step of resnet18" ctest
  "train on cuda:0x2" "train on cuda:0x4" "train resnet18 on cuda:0x2"
  "kernels of resnet18 in bf16" "kernels of lenet in fp32"
  "compare resnet18" "resnet18-pytorch seed 0" "lenet-scratch seed 0" "compare lenet" "bench allreduce" "bench overlap")

# small_build: a bundle, and a build whose program is on stdin, in a checkout that has lost a tracked file.
small_build() {
  command -v git >/dev/null || { echo "skipped: git is not installed"; exit 77; }
  program
  local built=$tree/build/cuda
  cp "$built/lockstep" "$built/scripts/compare_case"
  printf 'CMAKE_CACHEFILE_DIR:INTERNAL=/there/build/cuda\nCMAKE_HOME_DIRECTORY:INTERNAL=/there\n' >"$built/CMakeCache.txt"
  echo 'add_test(a "/there/build/cuda/tests/a")' >"$built/tests/CTestTestfile.cmake"
  mkdir -p "$tree/bundle/include/toml++" "$tree/bundle/lib"
  touch "$tree/bundle/include/toml++/toml.h" "$tree/bundle/include/"{xxhash,png,jpeglib}.h
  echo images >"$tree/bundle/fashion-mnist/images.gz"
  stand_in strip <<<'cp "$3" "$2"'  # the programs are scripts
  git -C "$tree" init -q
  touch "$tree/lost"
  git -C "$tree" add lost
  rm "$tree/lost"
}
# packed: packs such a build, and leaves only the pack.
packed() {
  small_build
  "$tree/scripts/gpu_pack.sh" --built "$tree/build/cuda" >"$work/output" 2>&1 || fail "no pack"
  rm -r "$tree/build" "$tree/bundle"
}
# Its training gives the same weights every time.
leased_program() { packed <<<'echo "weights sha256: 12ab"; echo "test acc: 0.80, $LOCKSTEP_DATA"'; }

steps_are() {  # those of the report, however steps beside each other ended, are these
  in_report 'sorted(s["name"] for s in r["parts"]["lease"]["steps"])' \
    "$("$python3" -c 'import sys; print(sorted(sys.argv[1:]))' "$@")"
}

case_lease() {
  leased_program
  gpu_check 0 lease 600
  steps_are "${lease_steps[@]}"
  in_report 'r["parts"]["lease"]["not_run"]' '[]'
  called 0 cmake
  called 2 "--fill-compile-cache"
  called 1 "ctest --test-dir $tree/build/lease/pack/cuda -L cuda"
  called 2 "--cuda-graph on --print-weights-hash"
  called 1 "kernel_times.py $report/kernels-resnet18-bf16.json --steps 20"
  says "test acc: 0.80, $tree/build/lease/pack/bundle/fashion-mnist"
  [ "$(cat "$tree/build/lease/pack/cuda/tests/CTestTestfile.cmake")" = \
    "add_test(a \"$tree/build/lease/pack/cuda/tests/a\")" ] || fail "ctest looks elsewhere"
  # In order: the smoke steps, the tests, the kernels, the comparison, the accuracy.
  grep -oE 'cuda-graph on|^ctest|kernel_times.py|compare_gpu.py.*--repeat|--epochs 10' "$calls" |
    sed 's/.*repeat/compare/' | uniq >"$work/order"
  [ "$(paste -sd, "$work/order")" = "cuda-graph on,ctest,kernel_times.py,compare,--epochs 10,compare" ] ||
    fail "another order: $(paste -sd, "$work/order")"
}
case_lease_goes_on() {  # after one call without time and one that was ended, a third runs what is left and reports all
  packed <<'STUB'
[ "$*" != devices ] || [ -e "$work/again" ] || exec sleep 1000
[[ $* != *resnet18-pytorch* ]] || [ -e "$work/third" ] || { touch "$work/second" && exec sleep 1000; }
echo "weights sha256: 12ab"
STUB
  gpu_check 1 lease 5
  in_report 'r["parts"]["lease"]["not_run"][-1]' "{'name': 'bench overlap', 'why': 'the time was used up'}"
  touch "$work/again"
  "$tree/scripts/gpu_check.sh" lease 600 --report "$report" >"$work/output" 2>&1 </dev/null &
  until [ -e "$work/second" ]; do :; done
  kill "$!"
  wait "$!" || true
  touch "$work/third"
  rm -r "$report"
  gpu_check 0 lease 600
  called 5 "--limit-test 512 --cuda-graph"  # none again but the one that was ended
  called 1 ctest
  steps_are "${lease_steps[@]}"
  in_report 'r["parts"]["lease"]["not_run"]' '[]'
}
case_lease_failed_smoke() {
  packed <<<'[[ $* != *"--cuda-graph on"* ]] || { echo "cannot capture"; exit 1; }; echo "weights sha256: 12ab"'
  gpu_check 1 lease 600
  called 0 ctest
  called 0 "--recipe resnet18-pytorch"
  in_report 'r["parts"]["lease"]["steps"][-1]["last_line"]' "cannot capture"
  in_report 'r["parts"]["lease"]["not_run"][1]' \
    "{'name': 'smoke resnet18, graph off', 'why': 'smoke lenet, graph on failed'}"
  in_report 'r["parts"]["lease"]["not_run"][-1]["name"]' 'bench overlap'
  gpu_check 1 lease 600  # nor does a second call run them
  called 0 ctest
}
case_lease_other_weights() {
  packed <<<'echo "weights sha256: $RANDOM$RANDOM"'
  gpu_check 1 lease 600
  says "smoke lenet, same weights failed"
  called 1 "ctest"
}
case_lease_without_a_driver() {  # each step says why, and nothing else is wrong with it
  packed <<'STUB'
case $* in
  --version) exit ;;
  *--deterministic*--cuda-graph*) echo "weights sha256: 12ab"; exit ;;
esac
printf 'no NVIDIA driver\nhint: use the CPU\n'
exit 5
STUB
  ctest_runs 3 3
  stand_in python <<STUB
case \$* in
  *gpu_report.py*) exec "$python3" "\$@" ;;
  *submodule_search_locations*) echo "$work/torch" ;;
  *find_spec*) ;;
  *) echo "no NVIDIA driver"; exit 1 ;;
esac
STUB
  gpu_check 1 lease 600
  steps_are "${lease_steps[@]}"
  in_report '{s["last_line"] for s in r["parts"]["lease"]["steps"] if s["exit_code"] and s["name"] != "ctest"}' \
    "{'no NVIDIA driver'}"
  in_report 'sum(s["exit_code"] != 0 for s in r["parts"]["lease"]["steps"])' 17
}
case_lease_commands() {  # without a GPU the real programs accept every flag and refuse the device alone
  local build=$1
  if PATH=${PATH#*:} nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    echo "skipped: this machine has a GPU, on which the steps would run"
    exit 77
  fi
  packed <<STUB
[[ \$0 != *compare_case ]] || exec "$build/scripts/compare_case" "\$@"
case \$* in  # the steps behind which the rest is run
  *--deterministic*) "$build/lockstep" "\$@" 2>&1 | grep -q ': cuda:0 cannot be used: ' && echo "weights sha256: 12ab" ;;
  *) exec "$build/lockstep" "\$@" ;;
esac
STUB
  gpu_check 1 lease 600
  steps_are "${lease_steps[@]}"
  in_report '[s["name"] for s in r["parts"]["lease"]["steps"] if ": cuda:0 cannot be used: " in s["last_line"]]' \
    "['train on cuda:0x2', 'train on cuda:0x4', 'train resnet18 on cuda:0x2', 'kernels of resnet18 in bf16', \
'kernels of lenet in fp32', 'resnet18-pytorch seed 0', 'lenet-scratch seed 0', 'bench allreduce', 'bench overlap']"
  in_report 'sum(s["exit_code"] != 0 for s in r["parts"]["lease"]["steps"])' 9
}
case_lease_builds() {  # where the brought build does not start
  packed <<<'echo "wrong torch"; exit 127'
  stand_in cmake <<STUB
echo "cmake \$*" >>"\$calls"
mkdir -p '$tree/build/cuda/scripts' && touch '$tree/build/cuda/build.ninja'
printf '#!/bin/bash\necho "weights sha256: 12ab"\n' |
  tee '$tree/build/cuda/lockstep' >'$tree/build/cuda/scripts/compare_case'
chmod +x '$tree/build/cuda/lockstep' '$tree/build/cuda/scripts/compare_case'
STUB
  gpu_check 1 lease 600
  called 1 "-DLOCKSTEP_BUILD_BUNDLE=$tree/build/lease/pack/bundle"
  called 1 "ctest --test-dir $tree/build/cuda"
  in_report '[s["name"] for s in r["parts"]["lease"]["steps"] if s["exit_code"]]' "['start the brought build']"
}
case_lease_usage() {
  gpu_check 2 lease
  says "lease needs a number of seconds"
  gpu_check 2 lease soon
}
case_pack_too_large() {
  small_build </dev/null
  head -c 3000000 /dev/urandom >"$tree/bundle/fashion-mnist/images.gz"
  local status=0
  "$tree/scripts/gpu_pack.sh" --built "$tree/build/cuda" --limit 3 >"$work/output" 2>&1 || status=$?
  [ "$status" -eq 1 ] || fail "exit code $status"
  says "too large to travel" "of 3145728 bytes"
}

"case_$1" "${@:2}"
