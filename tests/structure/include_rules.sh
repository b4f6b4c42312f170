#!/usr/bin/env bash
# Which folder may include what, and that libraries name no flags. Prints each line that breaks a rule and exits 1;
# prints nothing and exits 0 otherwise.
#   include_rules.sh [ROOT]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=${1:-$here/../..}
cd "$root"
broken=0

# forbid RULE PATTERN PATH...: no line of a source below these paths may match. Lines of grep that match `except` may.
forbid() {
  local rule=$1 pattern=$2
  shift 2
  local found
  found=$(grep -rnE --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' "$pattern" "$@" |
    grep -vE "${except:-^$}" || true)
  [ -z "$found" ] && return
  printf '%s\n' "$rule:" "$found"
  broken=1
}

own='^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]lockstep'
forbid 'data/, models/ and parallel/ are siblings that never include each other' "$own/(models|parallel)/" data
forbid 'data/, models/ and parallel/ are siblings that never include each other' "$own/(data|parallel)/" models
forbid 'data/, models/ and parallel/ are siblings that never include each other' "$own/(data|models)/" parallel
forbid 'support/ is a leaf' "$own/(app|data|models|parallel)/" support
forbid 'nothing includes app/ but its tests' "$own/app/" data models parallel support tests/data tests/models tests/parallel
forbid 'only tests include tests/' "$own/tests/" app data models parallel support
forbid 'own headers are included as <lockstep/folder/name.h>' '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' app data models parallel support
forbid 'CLI11 and spdlog appear only in app/' '(CLI/|CLI11|CLI::|spdlog)' data models parallel support
forbid 'libraries print nothing and never exit' '(std::(cout|cerr|clog)|[^a-z_]printf *\(|fmt::print|std::(exit|_Exit|quick_exit|abort|terminate)\>|(^|[[:space:];{])_?exit *\()' data models parallel support

# Texts of libraries name options as data (support/error_text.h), for which app/ writes flags.
except='^support/process/text_command\.h:|apt-get install --reinstall|^[^:]+:[0-9]+:[[:space:]]*//' \
  forbid 'libraries name no flags' '^([^"]*"[^"]*")*[^"]*"[^"]*--[[:alpha:]]' data models parallel support

python3 "$here/folder_order.py" . || broken=1

# NCCL is known to one folder, c10d and Gloo to one inside it, torch's version differences to one file.
include='^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]'
mapfile -t outside < <(find parallel -mindepth 1 -maxdepth 1 ! -name collectives)
mapfile -t outside_gloo < <(find parallel/collectives -mindepth 1 -maxdepth 1 ! -name gloo)
forbid 'only parallel/collectives/ may know NCCL' "$include([^>\"]*/)?nccl\.h" app data models support "${outside[@]}"
forbid 'only parallel/collectives/gloo/ may know c10d and Gloo' "$include(gloo/|([^>\"]*/)?c10d/)" \
  app data models support "${outside[@]}" "${outside_gloo[@]}"
files=$(grep -rlE --include='*.h' --include='*.cpp' --include='*.cu' 'TORCH_VERSION_(MAJOR|MINOR|PATCH)' app data models parallel support || true)
if [ "$(printf '%s' "$files" | grep -c .)" -gt 1 ]; then
  printf '%s\n' "only one file may know TORCH_VERSION_*:" "$files"
  broken=1
fi
exit $broken
