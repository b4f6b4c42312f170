#!/usr/bin/env bash
# scripts/test.sh [--all] [CTEST ARGUMENT...]: sets up, builds and runs the tests. Names failed and skipped tests at the end.
#
#   scripts/test.sh                  the release build and all its tests, up to 32 cases per program start
#   scripts/test.sh -L cpu -R idx    the same with arguments for ctest (here: label cpu, "idx" in the name)
#   scripts/test.sh --all            also clang-tidy, most tests under AddressSanitizer and UndefinedBehaviorSanitizer (not
#                                    those labelled slow, launcher or program), the tests without torch under
#                                    ThreadSanitizer, and a build of all CUDA sources (no GPU needed)
#
# Exit code: 0 when everything was built and no test failed, 1 otherwise.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"
# shellcheck disable=SC2034  # build.sh reads it
LOCKSTEP_BUILD_TESTS=on

summary=()
failed=no

readable() { sed 's/&quot;/"/g; s/&apos;/'"'"'/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g'; }

# failed_tests FILE: prints the failed tests of ctest's JUnit file, each with the last lines of its output.
failed_tests() {
  awk '
    /<testcase / {
      failed = /status="fail"/; printing = 0; lines = 0
      name = $0; sub(/.*<testcase name="/, "", name); sub(/" .*/, "", name)
    }
    failed && /<system-out>/ { printing = 1; sub(/.*<system-out>/, "") }
    failed && printing { line = $0; sub(/<\/system-out>.*/, "", line); if (line != "") kept[lines++] = line }
    /<\/system-out>/ { printing = 0 }
    /<\/testcase>/ && failed {
      print "  " name
      for (i = lines > 25 ? lines - 25 : 0; i < lines; i++) print "    " kept[i]
    }
  ' "$1" | readable
}

# skipped_tests FILE: prints the skipped tests, each with its reason. A test of several cases may have skipped only some.
skipped_tests() {
  awk '
    /<testcase / { name = $0; sub(/.*<testcase name="/, "", name); sub(/" .*/, "", name); skipped = 0 }
    /<skipped/ { skipped = 1 }
    /^(.*<system-out>)?skipped: / {
      why = $0; sub(/.*skipped: /, "", why); sub(/<.*/, "", why)
      print "  " name ": " why; skipped = 0
    }
    /<\/testcase>/ && skipped { print "  " name }
  ' "$1" | readable
}

# run_tests PRESET [CTEST ARGUMENT...]
run_tests() {
  local preset=$1 folder=$root/build/$1 output failures skipped
  shift
  output=$(mktemp)
  cd "$root"
  # Two more than cores: a third of the time tests wait, for processes that they start or for a timeout.
  ctest --preset "$preset" --parallel "$(($(nproc) + 2))" --output-junit "$folder/tests.xml" \
    --test-output-size-passed 65536 "$@" | tee "$output" ||
    failed=yes
  failures=$(failed_tests "$folder/tests.xml")
  skipped=$(skipped_tests "$folder/tests.xml")
  summary+=("$preset: $(grep -E '^[0-9]+% tests passed' "$output" || echo 'no tests were run')")
  [ -z "$failures" ] || summary+=("$preset: failed:" "$failures")
  [ -z "$skipped" ] || summary+=("$preset: $(wc -l <<<"$skipped") skipped:" "$skipped")
  rm -f "$output"
}

# part NAME COMMAND...: runs one part of --all. The other parts run even if it fails.
part() {
  local name=$1 started=$SECONDS
  shift
  say "--- $name"
  if ! "$@"; then
    failed=yes
    summary+=("$name: FAILED, see above")
  fi
  summary+=("$name: $((SECONDS - started)) s")
}

# ahead COMMAND...: builds what a later part needs while tests run, which wait a third of their time. At the lowest priority,
# and silently: that part goes on from there, and shows what fails. What still runs ends with this script.
ahead() {
  set -m  # a group of processes of its own
  (renice -n 19 "$BASHPID" && "$@") >/dev/null 2>&1 </dev/null &
  set +m
}
trap 'for builder in $(jobs -pr); do kill -- "-$builder" 2>/dev/null || true; done' EXIT

# build_and_test PRESET NEXT [CTEST ARGUMENT...]: NEXT is a command that builds for the next parts meanwhile.
build_and_test() {
  local preset=$1 next=$2
  shift 2
  (build "$preset" all) || return 1
  # shellcheck disable=SC2086  # several words
  ahead $next
  run_tests "$preset" "$@"
}

# Compiles and links what CUDA changes, for one generation of GPUs; the program and other tests have the same sources as in
# the release build. Needs no GPU, no driver and none of the 3.5 GB that torch needs on a GPU.
build_cuda() {
  if cuda_wanted; then
    summary+=("cuda: on, in the release build")
    return
  fi
  "$root/scripts/setup.sh" --quiet --cuda-compiler &&
    (CUDAARCHS=90 LOCKSTEP_BUILD_TORCH=$(torch_folder) build cuda "lockstep_shared cuda_only_tests") &&
    summary+=("cuda: the library and its CUDA tests compiled and linked")
}

build_tsan_and_cuda() {
  (build tsan all)
  build_cuda
}

# clang-tidy on the sources that need no torch.
check_tidy() {
  local code=0
  ("$root/scripts/setup.sh" --quiet --lint) || true  # without it tidy.sh says that it is skipped
  "$root/scripts/tidy.sh" || code=$?
  [ "$code" -ne 77 ] || summary+=("tidy: skipped, see above")
  [ "$code" -eq 0 ] || [ "$code" -eq 77 ]
}

help_first "$@"
everything=no
if [ "${1:-}" = --all ]; then
  everything=yes
  shift
fi

"$root/scripts/setup.sh" --quiet --tests
# Cases per program start. With arguments for ctest each case is a test, so that -R finds it.
[ "$everything" = no ] && [ $# -gt 0 ] || export LOCKSTEP_TEST_BATCH=${LOCKSTEP_TEST_BATCH:-32}
if [ "$everything" = no ]; then
  (build release all)
  run_tests release "$@"
else
  part tidy check_tidy
  # Without the tests that take minutes under AddressSanitizer: the release build runs them. Tests of `lockstep launch`,
  # kills and full disks start the sanitized program.
  part release build_and_test release "build asan all" "$@"
  part asan build_and_test asan build_tsan_and_cuda -LE 'slow|launcher' "$@"
  part tsan build_and_test tsan true "$@"
  part cuda build_cuda
fi
printf '\n'
printf '%s\n' "${summary[@]}"
[ "$failed" = no ]
