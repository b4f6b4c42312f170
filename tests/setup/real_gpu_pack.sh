#!/usr/bin/env bash
# real_gpu_pack.sh: fetches torch 2.11 for CUDA 13.0, packs a build against it for an H100 (scripts/gpu_pack.sh checks the
# size), and runs `scripts/gpu_check.sh lease` with nothing but what travels. Without a GPU every program of the pack must
# start, accept its flags and end with "no NVIDIA driver". The first time 2.5 GB are fetched, and two cores build for half
# an hour.
source "$(dirname "$0")/stand_ins.sh"
there=$work/there pack=$work/there/build/lease/pack report=$work/report
if PATH=${PATH#*:} nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  echo "skipped: this machine has a GPU, on which the steps would run"
  exit 77
fi

# pack_it: leaves the pack in .gpu/ of this checkout. Sets LOCKSTEP_PYTHON.
pack_it() {
  local bundle=() torch
  [ -d "$root/bundle" ] || bundle=(--bundle "$root/bundle")
  LOCKSTEP_PYTHON=$("$root/scripts/setup.sh" --quiet --cuda-compiler --python=2.11.0 ${bundle[@]+"${bundle[@]}"})
  torch=$("$LOCKSTEP_PYTHON" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
  CUDAARCHS=90 LOCKSTEP_BUILD_TORCH=$torch "$root/scripts/gpu_pack.sh"
}

# travel: to another folder, with a pack whose programs look for libraries only where they are told to.
travel() {
  mkdir -p "$pack"
  (cd "$root" && git ls-files -z --cached --others --exclude-standard |
    tar --null --ignore-failed-read -cT - 2>/dev/null) | tar -C "$there" -x
  ln -s "$root/.gpu" "$there/.gpu"
  tar -C "$pack" -xJf "$there/.gpu/pack.tar.xz"
  du -sk "$pack/bundle" "$pack"/cuda/{lockstep,scripts,tests}
  echo 'file(RPATH_REMOVE FILE "${PROGRAM}")' >"$work/rpath_remove.cmake"
  find "$pack/cuda" -type f -perm -u+x -exec cmake -DPROGRAM={} -P "$work/rpath_remove.cmake" \; >"$work/output"
}

# The steps on whose failure the rest would not be run pass when the program refuses the device alone.
pass_smoke_steps() {
  mv "$pack/cuda/lockstep" "$pack/cuda/lockstep.packed"
  cat >"$pack/cuda/lockstep" <<'STUB'
#!/bin/bash
case $* in
  *--deterministic*--cuda-graph*)
    "$0.packed" "$@" 2>&1 | grep 'cuda:0 cannot be used: no NVIDIA driver' && echo "weights sha256: 12ab" ;;
  *) exec "$0.packed" "$@" ;;
esac
STUB
  chmod +x "$pack/cuda/lockstep"
}

# Every step but those that need no GPU, or that have passed by the above, names the driver at its end.
judge() {
  "$LOCKSTEP_PYTHON" - "$report/gpu_check.json" <<'PYTHON'
import json, re, sys

lease = json.load(open(sys.argv[1]))["parts"]["lease"]
without_gpu = {"read torch's libraries", "start the brought build", "machine"}
wrong = [f"not run: {step}" for step in lease["not_run"]]
for step in lease["steps"]:
    passes = step["name"] in without_gpu or step["name"].startswith("smoke ")
    if step["name"] == "ctest":  # its log has said why they were skipped
        tests = re.fullmatch(r"(\d+) tests: 0 failed, (\d+) skipped", step["last_line"])
        right = tests and tests[1] == tests[2] != "0"
    else:
        right = passes or "no NVIDIA driver" in step["last_line"]
    if not right or (step["exit_code"] == 0) != passes:
        wrong.append(f"{step['name']}: exit code {step['exit_code']}, {step['last_line']}")
print(*wrong, f"{len(lease['steps'])} steps, {len(wrong)} wrong", sep="\n")
sys.exit(1 if wrong else 0)
PYTHON
}

pack_it
travel
pass_smoke_steps
stand_in nvidia-smi <<<'case $* in *-L) echo "GPU 0" ;; *) echo none ;; esac'
for call in first second; do  # the second one runs what a slow machine has cut off
  status=0
  LOCKSTEP_PYTHON=$LOCKSTEP_PYTHON "$there/scripts/gpu_check.sh" lease 3600 --report "$report" >"$work/output" 2>&1 \
    </dev/null || status=$?
  [ "$status" -eq 1 ] || fail "$call call: expected exit code 1, found $status"
done
judge || fail "a step ended otherwise"
ctest --test-dir "$pack/cuda" --show-only=json-v1 >"$work/tests.json"
grep -qF "$there/tests/reference" "$work/tests.json" || fail "the tests do not look for their files where they travelled to"
! grep -oF "$root/" "$work/tests.json" >"$work/output" || fail "the tests look for files in this checkout"
