#!/usr/bin/env bash
# clang.sh: clang, which cannot build lockstep, compiles what users include: each public header alone, all together, and
# the examples.
source "$(dirname "$0")/installed.sh"

clang=
for version in 16 17 18 19 20; do
  [ -n "$clang" ] || clang=$(command -v "clang++-$version" || true)
done
[ -n "$clang" ] || { echo "skipped: no clang++-16 or newer (scripts/setup.sh --lint installs one)"; exit 77; }

compile() {
  quietly "$clang" -std=c++20 -Wall -Wextra -Werror -I "$root/include" -isystem "$TORCH/include" \
    -isystem "$TORCH/include/torch/csrc/api/include" "$@"
}

# includes_torch HEADER: whether it includes torch, itself or by another header of lockstep.
includes_torch() {
  local inner
  grep -qE '^#include <(torch|ATen|c10)/' "$root/$1" && return
  while read -r inner; do
    includes_torch "$inner" && return
  done < <(sed -nE 's|^#include <lockstep/(.*)>|\1|p' "$root/$1")
  return 1
}

# A header with torch takes seconds, and a second after torch/types.h, which all of these include. (So the order in which
# they include torch's headers is not tested.)
compile -fpch-instantiate-templates -o "$work/types.pch" \
  -x c++-header "$TORCH/include/torch/csrc/api/include/torch/types.h"
for header in "${headers[@]}"; do
  precompiled=()
  ! includes_torch "$header" || precompiled=(-include-pch "$work/types.pch")
  printf '#include <lockstep/%s>\n' "$header" "$header" >"$work/alone.cpp"
  compile -fsyntax-only "${precompiled[@]}" "$work/alone.cpp"
done
# All in one source, with an example: no two of them clash.
printf '#include <lockstep/%s>\n' "${headers[@]}" | cat - "$root/examples/own_model.cpp" >"$work/all.cpp"
compile -fpch-instantiate-templates -include-pch "$work/types.pch" -o "$work/torch.pch" \
  -x c++-header "$TORCH/include/torch/csrc/api/include/torch/torch.h"
for source in "$work/all.cpp" "$root"/examples/{own_loop,character_gpt}.cpp; do
  compile -fsyntax-only -include-pch "$work/torch.pch" "$source"
done
echo "$clang compiles ${#headers[@]} headers, each alone and all together, and three examples"
