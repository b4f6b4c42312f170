#!/usr/bin/env bash
# scripts/compare_pytorch.sh [ARG...]: compares the training of the chapters' networks in lockstep and in Python torch
# (eager, DistributedDataParallel, torch.compile) on this machine. Prints ms per step and images/s with ratios and goals, and
# for LeNet in fp32 the seconds of a whole epoch. lockstep runs with its own kernels and with torch's (--kernels torch); for
# LeNet in fp32 also without Winograd's tiles (--kernels direct). At the end one table shows all cases, in the form of
# docs/results.md. Sets up and builds first where needed. Measure on a machine that does nothing else, on two cores;
# ResNet-18 needs 16 GB of memory.
#
#   scripts/compare_pytorch.sh         LeNet and ResNet-18 in fp32 and bf16: half an hour
#   scripts/compare_pytorch.sh --model lenet --precision fp32     one of them; also resnet18, bf16
#   scripts/compare_pytorch.sh --model mlp,cnn,gpt --against eager,ddp           networks of one's own, of torch's layers: an
#                                                                                MLP, a CNN, a character GPT
#   LOCKSTEP_TORCHVISION=FOLDER scripts/compare_pytorch.sh --model program_resnet18,program_gpt,program_mobilenet \
#       --against eager,ddp                      exported programs; the first two also beside the same network in C++
#   scripts/compare_pytorch.sh --model lenet --kernels torch --against eager,ddp      LeNet without lockstep's kernels
#   scripts/compare_pytorch.sh --repeat 25 --json FILE --markdown FILE      the figures of each repetition, and the table
#   scripts/compare_pytorch.sh --against eager,ddp                without torch.compile, which compiles for some minutes
#   scripts/compare_pytorch.sh --built FOLDER    uses the programs in that build folder; must come first
#   ARG...                                       flags of scripts/compare/compare_pytorch.py (see its --help)
#
# torch.compile needs a C++ compiler and Python's headers. Without them it is left out, with a message.
#
# Environment: LOCKSTEP_PYTHON=PATH, a Python with torch; default: the one of `scripts/setup.sh --python`.
# LOCKSTEP_TORCHVISION=FOLDER, which has torchvision for --model program_mobilenet, where Python has none.
# Exit code: 0 all is well, 1 a goal is missed or results differ, 2 usage, 7 output file, 77 skipped: no Python torch.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"

help_first "$@"

need_python_torch
find_build "lockstep_cli compare_case" "$@"
[ -x "$built/scripts/compare_case" ] || die "$built/scripts/compare_case is missing" "build the target compare_case"
exec "$python" "$root/scripts/compare/compare_pytorch.py" --lockstep "$built/lockstep" \
  --compare-case "$built/scripts/compare_case" "${arguments[@]}"
