#!/usr/bin/env bash
# scripts/run.sh ARGS...: runs `lockstep ARGS...`, setting up and building first where that is needed.
# What set-up and build have to say goes to stderr; exit code and signals are lockstep's own.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"

"$root/scripts/setup.sh" --quiet
build release lockstep_cli
exec "$root/build/release/lockstep" "$@"
