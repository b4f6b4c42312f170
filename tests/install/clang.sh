#!/usr/bin/env bash
# clang.sh: clang, which cannot build lockstep, compiles programs that use it: the examples and all public headers.
source "$(dirname "$0")/installed.sh"

clang=
for version in 16 17 18 19 20; do
  [ -n "$clang" ] || clang=$(command -v "clang++-$version" || true)
done
[ -n "$clang" ] || { echo "skipped: no clang++-16 or newer (scripts/setup.sh --lint installs one)"; exit 77; }
printf '#include <lockstep/%s>\n' "${headers[@]}" | cat - "$root"/examples/own_model.cpp >"$work/all.cpp"
for source in "$work/all.cpp" "$root/examples/own_loop.cpp"; do
  quietly "$clang" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I "$BUILD/include" -isystem "$TORCH/include" \
    -isystem "$TORCH/include/torch/csrc/api/include" "$source"
done
echo "$clang compiles ${#headers[@]} headers and both examples"
