#!/usr/bin/env bash
# scripts/tidy.sh [FILE...]: checks sources with clang-tidy 14 and the settings of .clang-tidy. Needs no build.
#
#   scripts/tidy.sh                        the sources that need no torch: a minute on two cores
#   scripts/tidy.sh parallel/trainer.cpp   this source; one that needs torch takes half a minute
#   scripts/tidy.sh --list                 prints the sources that the first form checks
#
# Exit code: 0 when there is no finding, 1 when there is one, 77 when clang-tidy is missing or of another version.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"
folders=(app data models parallel support)

# The files that include torch, directly or through headers of this tree.
need_torch() {
  local found more
  found=$(grep -rlE '^#include <(torch|ATen|c10)/' "${folders[@]}" | sort)
  while :; do
    more=$({ echo "$found" && sed -n 's|.*\.h$|#include <lockstep/&>|p' <<<"$found" |
      grep -rlF -f - "${folders[@]}"; } | sort -u)
    [ "$more" != "$found" ] || break
    found=$more
  done
  echo "$found"
}

# models/layers/cpu/ is written for g++ alone: clang does not know its vectors.
list_sources() {
  find "${folders[@]}" -name '*.cpp' ! -path 'models/layers/cpu/*' ! -name '*_cuda.cpp' | sort | grep -vxF -f <(need_torch)
}

find_clang_tidy() {
  clang_tidy=$(type -P clang-tidy-14 || type -P clang-tidy) ||
    { say "skipped: no clang-tidy; scripts/setup.sh --lint installs it"; exit 77; }
  [[ $("$clang_tidy" --version) =~ version\ 14\. ]] ||
    { say "skipped: versions find different things; this needs clang-tidy 14"; exit 77; }
}

# check_sources COUNT FLAG...: checks the sources on stdin, on each core COUNT at a time. These are one translation unit: a
# source by itself spends most of its time on headers.
check_sources() {
  local count=$1
  shift
  # shellcheck disable=SC2016  # the inner shell expands them
  xargs -r -P "$(nproc)" -n "$count" bash -c 'tidy=$1 settings=$2 folder=$3 flags=$4; shift 4
    unit=$(mktemp "$folder/unit-XXXXXX.cpp")
    printf "#include <lockstep/%s>  // NOLINT(bugprone-suspicious-include)\n" "$@" >"$unit"
    # shellcheck disable=SC2086  # several flags
    "$tidy" --quiet --config-file="$settings" "$unit" -- $flags 2>&1 |
      { grep -vE "^[0-9]+ warnings? (and [0-9]+ errors? )?generated" || true; } | sed "s|$PWD/include/lockstep/||g"
    exit "${PIPESTATUS[0]}"' - "$clang_tidy" "$root/.clang-tidy" "$units" "$*"
}

help_first "$@"
[ $# -eq 0 ] || [ "$1" = --list ] || mapfile -t sources < <(realpath --relative-to="$root" "$@")
cd "$root"
[ "${1:-}" != --list ] || { list_sources; exit; }
find_clang_tidy
[ $# -gt 0 ] || mapfile -t sources < <(list_sources)

units=$(mktemp -d)
trap 'rm -rf "$units"' EXIT
mkdir "$units/first"
ln -s /usr/include/fmt "$units/first/fmt"  # before torch's own
torch=$(torch_folder)/include
flags=(-std=c++20 "-I$root/include" -isystem "$units/first" -isystem "$torch" -isystem "$torch/torch/csrc/api/include"
  -isystem /usr/include/cairo -DSPDLOG_FMT_EXTERNAL -DUSE_DISTRIBUTED -DUSE_C10D_GLOO)
code=0
count=16
[ $# -eq 0 ] || count=1  # any sources; some define the same names
# A stub defines what another source does, too.
printf '%s\n' "${sources[@]}" | { grep -v '_stub\.cpp$' || true; } | check_sources "$count" "${flags[@]}" || code=1
printf '%s\n' "${sources[@]}" | { grep '_stub\.cpp$' || true; } | check_sources 1 "${flags[@]}" || code=1
if [ "$code" -eq 0 ]; then
  say "clang-tidy finds nothing in ${#sources[@]} sources"
else
  say "clang-tidy has findings"
  exit 1
fi
