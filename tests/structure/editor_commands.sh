#!/usr/bin/env bash
# editor_commands.sh SOURCE BUILD: the build has its commands; where the root's link leads to this build, it shows them. (It
# leads to the build that was configured last, which may be gone.)
set -eu
grep -q app/main.cpp "$2/compile_commands.json"
link=$1/compile_commands.json
[ -L "$link" ] || { echo "no link in $1"; exit 1; }
[ "$(readlink -m "$link")" != "$(readlink -m "$2/compile_commands.json")" ] || grep -q app/main.cpp "$link"
