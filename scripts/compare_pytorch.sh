#!/usr/bin/env bash
# scripts/compare_pytorch.sh [ARG...]: lockstep and eager Python torch train the chapter's LeNet in turn on this machine;
# prints ms a step, images/s and seconds an epoch side by side, with the ratios and the goals they are held against.
# Set-up and build come first where they are needed. Measure on a machine that does nothing else.
#
#   scripts/compare_pytorch.sh                   11 turns of 20 steps, then a whole epoch each: about 2 minutes
#   scripts/compare_pytorch.sh --turns 25 --json FILE
#   scripts/compare_pytorch.sh --built FOLDER    with the programs of that build folder
#   ARG...                                       the flags of scripts/compare_turns.py (its --help lists them)
#
# Environment: LOCKSTEP_PYTHON=PATH, a Python with torch, instead of what `scripts/setup.sh --python` fetches.
# Exit code: 0 all is well, 1 a goal is missed or results differ, 77 skipped: no Python torch.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"

case ${1:-} in
  --help | -h)
    show_help "${BASH_SOURCE[0]}"
    exit
    ;;
esac

python=${LOCKSTEP_PYTHON:-$torch_full/bin/python}
if ! "$python" -c 'import torch' 2>/dev/null; then
  say "skipped: no Python torch to compare with; scripts/setup.sh --python gets one"
  exit 77
fi

if [ "${1:-}" = --built ]; then
  built=${2:?--built needs a folder}
  shift 2
else
  "$root/scripts/setup.sh" --quiet
  build release "lockstep_cli contender"
  built=$root/build/release
fi
[ -x "$built/scripts/contender" ] || die "$built/scripts/contender is missing" "build the target contender"
exec "$python" "$root/scripts/compare_turns.py" --lockstep "$built/lockstep" --contender "$built/scripts/contender" "$@"
