# Sourced by the tests of scripts: a scratch folder, fake commands, and checks of output.
# shellcheck shell=bash
set -euo pipefail
# Scripts read these, and the caller's may be set: a build of all tests compiles in larger batches, for example.
for name in ${!LOCKSTEP_@}; do unset "$name"; done
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
calls=$work/calls  # the calls of fake commands, one line per call
touch "$calls"
mkdir "$work/bin"
PATH=$work/bin:$PATH

# stand_in NAME: replaces command NAME by the script on stdin.
stand_in() {
  { printf '#!/bin/bash\ncalls=%q work=%q\n' "$calls" "$work" && cat; } >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

fail() {
  printf '%s. The output:\n%s\nThe calls:\n%s\n' "$1" "$(cat "$work/output")" "$(cat "$calls")"
  exit 1
}

says() {
  local text
  for text in "$@"; do
    grep -qF -- "$text" "$work/output" || fail "expected \"$text\""
  done
}

lines() { [ "$(wc -l <"$work/output")" -eq "$1" ] || fail "expected $1 lines"; }
called() { [ "$(grep -cF -- "$2" "$calls" || true)" -eq "$1" ] || fail "expected $1 calls with \"$2\""; }
