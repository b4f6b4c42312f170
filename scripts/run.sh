#!/usr/bin/env bash
# scripts/run.sh ARGS...: runs `lockstep ARGS...`; sets up and builds first where needed.
# Set-up and build print to stderr; the exit code is lockstep's.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"

"$root/scripts/setup.sh" --quiet
build release lockstep_cli
exec "$root/build/release/lockstep" "$@"
