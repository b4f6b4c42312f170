#!/usr/bin/env bash
# scripts/compare_bench.sh [--built FOLDER] [ARG...]: compares what `lockstep bench` measures with the same in Python torch
# on this machine: matrix products on one and on two replicas, sums over two replicas (torch.distributed's Gloo), and a
# training step of LeNet. Prints one table with the ratios. Sets up and builds first where needed. Measure on a machine
# that does nothing else, on two cores.
#
#   scripts/compare_bench.sh                            all parts, five repetitions
#   scripts/compare_bench.sh --repeat 11 --json FILE
#   scripts/compare_bench.sh --parts allreduce,step     some parts; the others are matmuls and gloo (only by name)
#   scripts/compare_bench.sh --built FOLDER             uses the program in that build folder; must come first
#   ARG...                                              flags of scripts/compare/compare_bench.py (see its --help)
#
# Environment: LOCKSTEP_PYTHON=PATH, a Python with torch; default: the one of `scripts/setup.sh --python`.
# Exit code: 0 all is well, 1 failed or a result is wrong, 2 usage, 7 output file, 77 skipped: no Python torch, 130 or 143
# stopped by a signal, after printing the results so far.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"

help_first "$@"

need_python_torch
find_build lockstep_cli "$@"
exec "$python" "$root/scripts/compare/compare_bench.py" --lockstep "$built/lockstep" "${arguments[@]}"
