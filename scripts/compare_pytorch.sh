#!/usr/bin/env bash
# scripts/compare_pytorch.sh [ARG...]: lockstep and Python torch (eager, DistributedDataParallel, torch.compile) train
# the chapters' networks in turn on this machine; prints ms a step and images/s side by side, with the ratios and the
# goals they are held against, and for LeNet in fp32 the seconds of a whole epoch. lockstep takes part with its own
# kernels and with torch's (--kernels torch), of LeNet in fp32 also without Winograd's tiles (--kernels direct). At the
# end all cases stand in one table, in the form of docs/results.md. Set-up and build come first where they are
# needed. Measure on a machine that does nothing else, on two cores; ResNet-18 needs 16 GB of memory.
#
#   scripts/compare_pytorch.sh         LeNet and ResNet-18, fp32 and bf16, one after the other: half an hour
#   scripts/compare_pytorch.sh --model lenet --precision fp32     one of them; likewise resnet18, bf16
#   scripts/compare_pytorch.sh --turns 25 --json FILE --markdown FILE       the numbers turn by turn, and the table
#   scripts/compare_pytorch.sh --against eager,ddp                without torch.compile, which compiles for some minutes
#   scripts/compare_pytorch.sh --built FOLDER    with the programs of that build folder; comes first
#   ARG...                                       the flags of scripts/compare_turns.py (its --help lists them)
#
# torch.compile needs a C++ compiler and Python's headers; where they are missing it is left out, and a line says so.
#
# Environment: LOCKSTEP_PYTHON=PATH, a Python with torch, instead of what `scripts/setup.sh --python` fetches.
# Exit code: 0 all is well, 1 a goal is missed or results differ, 2 usage, 7 output file, 77 skipped: no Python torch.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"

case ${1:-} in
  --help | -h)
    show_help "${BASH_SOURCE[0]}"
    exit
    ;;
esac

need_python_torch
find_build "lockstep_cli contender" "$@"
[ -x "$built/scripts/contender" ] || die "$built/scripts/contender is missing" "build the target contender"
exec "$python" "$root/scripts/compare_turns.py" --lockstep "$built/lockstep" --contender "$built/scripts/contender" \
  "${arguments[@]}"
