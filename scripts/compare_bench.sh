#!/usr/bin/env bash
# scripts/compare_bench.sh [--built FOLDER] [ARG...]: what `lockstep bench` measures beside the same in stock Python torch,
# in turns on this machine: products of a matrix on one and on two replicas' worth of threads, sums over two replicas
# (torch.distributed's Gloo), and a training step of LeNet. Prints one table with the ratios. Set-up and build come first
# where they are needed. Measure on a machine that does nothing else, on two cores.
#
#   scripts/compare_bench.sh                            all of it in five turns
#   scripts/compare_bench.sh --turns 11 --json FILE
#   scripts/compare_bench.sh --parts allreduce,step     some of it; the third one is products
#   scripts/compare_bench.sh --built FOLDER             with the program of that build folder; comes first
#   ARG...                                              the flags of scripts/compare_bench.py (its --help lists them)
#
# Environment: LOCKSTEP_PYTHON=PATH, a Python with torch, instead of what `scripts/setup.sh --python` fetches.
# Exit code: 0 all is well, 1 failed or a result is wrong, 2 usage, 7 output file, 77 skipped: no Python torch, 130 or 143
# stopped by a signal, after what is done so far.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"

case ${1:-} in
  --help | -h)
    show_help "${BASH_SOURCE[0]}"
    exit
    ;;
esac

need_python_torch
find_build lockstep_cli "$@"
[ -x "$built/lockstep" ] || die "$built/lockstep is missing" "build the target lockstep_cli"
exec "$python" "$root/scripts/compare_bench.py" --lockstep "$built/lockstep" "${arguments[@]}"
