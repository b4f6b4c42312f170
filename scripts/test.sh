#!/usr/bin/env bash
# scripts/test.sh [--all] [CTEST ARGUMENT...]: sets up, builds and runs the tests; what failed and what was skipped is
# named at the end.
#
#   scripts/test.sh                  the release build and all its tests
#   scripts/test.sh -L cpu -R idx    the same, handing ctest a choice (here: label cpu, "idx" in the name)
#   scripts/test.sh --all            also, but for slow ones, the tests under AddressSanitizer and UndefinedBehaviorSanitizer, those that need
#                                    no torch under ThreadSanitizer, and a build of all CUDA sources (no GPU needed)
#
# Exit code: 0 when everything built and no test failed, 1 otherwise.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"
# shellcheck disable=SC2034  # build.sh reads it
LOCKSTEP_BUILD_TESTS=on

summary=()
failed=no

readable() { sed 's/&quot;/"/g; s/&apos;/'"'"'/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g'; }

# Of ctest's JUnit file: the tests that failed, a line each, and the last lines that each has printed.
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

# The skipped ones: the name, and the reason that the test gave.
skipped_tests() {
  awk '
    /<testcase / { name = $0; sub(/.*<testcase name="/, "", name); sub(/" .*/, "", name); skipped = 0 }
    /<skipped/ { skipped = 1; why = "" }
    skipped && /skipped: / { why = $0; sub(/.*skipped: /, "", why); sub(/<.*/, "", why) }
    /<\/testcase>/ && skipped { print "  " name (why == "" ? "" : ": " why) }
  ' "$1" | readable
}

# run_tests PRESET [CTEST ARGUMENT...]
run_tests() {
  local preset=$1 folder=$root/build/$1 output failures skipped
  shift
  output=$(mktemp)
  cd "$root"
  ctest --preset "$preset" --parallel "$(nproc)" --output-junit "$folder/tests.xml" "$@" | tee "$output" ||
    failed=yes
  failures=$(failed_tests "$folder/tests.xml")
  skipped=$(skipped_tests "$folder/tests.xml")
  summary+=("$preset: $(grep -E '^[0-9]+% tests passed' "$output" || echo 'no tests were run')")
  [ -z "$failures" ] || summary+=("$preset: failed:" "$failures")
  [ -z "$skipped" ] || summary+=("$preset: $(wc -l <<<"$skipped") skipped:" "$skipped")
  rm -f "$output"
}

# part NAME COMMAND...: one part of --all; a part that cannot be built does not keep the others from running.
part() {
  local name=$1 started=$SECONDS
  shift
  say "--- $name"
  if ! "$@"; then
    failed=yes
    summary+=("$name: FAILED to build, see above")
  fi
  summary+=("$name: $((SECONDS - started)) s")
}

build_and_test() {
  local preset=$1
  shift
  (build "$preset" all) && run_tests "$preset" "$@"
}

# Needs no GPU, no driver and none of the 3.5 GB that a GPU needs beside torch itself: it compiles and links what CUDA
# changes. The other tests are the same sources as in the release build.
build_cuda() {
  if cuda_wanted; then
    summary+=("cuda: on, in the release build")
    return
  fi
  "$root/scripts/setup.sh" --quiet --cuda-compiler &&
    (LOCKSTEP_BUILD_TORCH=$(torch_folder) build cuda "lockstep_cli compare_case cuda_tests") &&
    summary+=("cuda: the program and its CUDA tests compiled and linked")
}

if [ "${1:-}" = --help ]; then
  show_help "${BASH_SOURCE[0]}"
  exit
fi
everything=no
if [ "${1:-}" = --all ]; then
  everything=yes
  shift
fi

"$root/scripts/setup.sh" --quiet --tests
if [ "$everything" = no ]; then
  build release all
  run_tests release "$@"
else
  part asan build_and_test asan -LE slow "$@"  # their arithmetic takes minutes, and the release build does it
  part tsan build_and_test tsan "$@"
  part cuda build_cuda
  part release build_and_test release "$@"
fi
printf '\n'
printf '%s\n' "${summary[@]}"
[ "$failed" = no ]
