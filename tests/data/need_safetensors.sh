# Sourced by the tests that use Python's safetensors package.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/scripts/lib.sh"

# need_safetensors PACKAGE: sets $python to a Python with safetensors and PACKAGE (LOCKSTEP_PYTHON, or else the one that
# `scripts/setup.sh --python` installed) and $folder to a temporary folder. Skips the test if there is no such Python.
need_safetensors() {
  if ! find_python safetensors "$1"; then
    say "skipped: no Python with safetensors and $1; LOCKSTEP_PYTHON=PATH names one"
    exit 77
  fi
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
}
