#!/usr/bin/env bash
# read_run_folder.sh PROGRAM: a resumed run's event file, read by the real TensorBoard.
source "$(dirname "${BASH_SOURCE[0]}")/../../../scripts/lib.sh"
if ! find_python tensorboard; then
  say "skipped: no Python with tensorboard; scripts/setup.sh --python gets one"
  exit 77
fi
exec "$python" "$(dirname "${BASH_SOURCE[0]}")/read_run_folder.py" "$1"
