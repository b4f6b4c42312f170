# Sourced by the tests of the installed tree, which lies outside of the checkout. CMakeLists.txt sets
#   BUILD, CXX, TORCH, TORCH_VERSION, TORCH_COPY, VERSION, LIBDIR, HEADERS   of the build
# shellcheck shell=bash disable=SC2034,SC2153
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
torch=$TORCH
[ -z "$TORCH_COPY" ] || torch=$prefix/$TORCH_COPY
read -ra headers <<<"$HEADERS"
unset LOCKSTEP_BUILD_TORCH CMAKE_PREFIX_PATH

# Programs are compiled once, wherever the scratch folder is.
export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
ccache=$(command -v ccache || true)

fail() {
  printf '%s\n' "$@"
  exit 1
}

# quietly COMMAND...: prints its output only if it fails.
quietly() {
  "$@" >"$work/output" 2>&1 || fail "$(cat "$work/output")" "this failed: $*"
}

# One at a time: an installation writes into the build's folder, too.
install_into() { quietly flock "$BUILD/install.lock" cmake --install "$BUILD" --prefix "$1"; }

# build PROJECT ARGUMENT...: configures and builds the folder PROJECT, which asks for lockstep.
build() {
  local project=$1
  shift
  quietly cmake -S "$project" -B "$project/build" -G Ninja "-DCMAKE_CXX_COMPILER=$CXX" \
    "-DCMAKE_CXX_COMPILER_LAUNCHER=$ccache" "-DCMAKE_PREFIX_PATH=$prefix" "$@"
  quietly cmake --build "$project/build"
}

# run_checks CHECK...: runs these functions and prints how long each took.
run_checks() {
  local check started
  for check in "$@"; do
    started=$SECONDS
    "$check"
    echo "$((SECONDS - started)) s: $check"
  done
}
