#!/usr/bin/env bash
# Which folder may include what. Prints each line that breaks a rule and exits 1; prints nothing and exits 0 otherwise.
#   include_rules.sh [ROOT]
set -euo pipefail
root=${1:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "$root"
broken=0

# forbid RULE PATTERN FOLDER...: no source line in these folders matches.
forbid() {
  local rule=$1 pattern=$2
  shift 2
  local found
  found=$(grep -rnE --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' "$pattern" "$@" || true)
  [ -z "$found" ] && return
  printf '%s\n' "$rule:" "$found"
  broken=1
}

ours='^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]lockstep'
forbid 'data/, models/ and parallel/ are siblings that never include each other' "$ours/(models|parallel)/" data
forbid 'data/, models/ and parallel/ are siblings that never include each other' "$ours/(data|parallel)/" models
forbid 'data/, models/ and parallel/ are siblings that never include each other' "$ours/(data|models)/" parallel
forbid 'support/ is a leaf' "$ours/(app|data|models|parallel)/" support
forbid 'nothing includes app/ but its tests' "$ours/app/" data models parallel support tests/data tests/models tests/parallel
forbid 'only tests include tests/' "$ours/tests/" app data models parallel support
forbid 'own headers are included as <lockstep/folder/name.h>' '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' app data models parallel support
forbid 'CLI11 and spdlog appear only in app/' '(CLI/|CLI11|CLI::|spdlog)' data models parallel support
forbid 'libraries print nothing and never exit' '(std::(cout|cerr|clog)|[^a-z_]printf *\(|fmt::print|std::(exit|_Exit|quick_exit|abort|terminate)\>|(^|[[:space:];{])_?exit *\()' data models parallel support

# NCCL, c10d and torch's version differences are each known to one file.
for name in 'nccl\.h' 'c10d/' 'TORCH_VERSION_(MAJOR|MINOR|PATCH)'; do
  files=$(grep -rlE --include='*.h' --include='*.cpp' --include='*.cu' "$name" app data models parallel support || true)
  [ "$(printf '%s' "$files" | grep -c .)" -le 1 ] && continue
  printf '%s\n' "only one file may know $name:" "$files"
  broken=1
done
exit $broken
