#!/bin/bash
# man_page.sh PROGRAM: man shows `lockstep man` without a warning, and has all commands in it.
set -euo pipefail
command -v man >/dev/null || { echo "skipped: man is not installed"; exit 77; }
command -v groff >/dev/null || { echo "skipped: groff is not installed"; exit 77; }
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
"$1" man >"$folder/lockstep.1"
LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -l "$folder/lockstep.1" >"$folder/text" 2>"$folder/warnings"
if [ -s "$folder/warnings" ]; then
  cat "$folder/warnings"
  exit 1
fi
for words in 'lockstep train' 'lockstep bench allreduce' '--precision fp32|tf32|bf16|fp16|fp64' 'EXIT STATUS' \
  LOCKSTEP_CPU_CAPABILITY; do
  grep -q -e "$words" "$folder/text" || { echo "the page lacks: $words"; exit 1; }
done
