#!/usr/bin/env bash
# scripts/bench_1_vs_2.sh [ARG...]: runs LeNet and ResNet-18 on one device and on two, with the chapters' settings. Prints
# the time of an epoch, speed-up, efficiency and test accuracy, beside the chapters' figures. Sets up and builds first where
# needed. Measure on a machine that does nothing else.
#
#   scripts/bench_1_vs_2.sh            a Markdown table. On GPUs with 10 epochs each, for the accuracy; on a CPU without,
#                                      in less than five minutes (ResNet-18 takes 5 GB of memory)
#   scripts/bench_1_vs_2.sh --markdown FILE --json FILE     also writes these files; --overwrite replaces them
#   scripts/bench_1_vs_2.sh --devices "cuda:0 cuda:0x2"     default: the first GPUs, or the CPU without a GPU
#   scripts/bench_1_vs_2.sh --epochs 3 --repeat 9           epochs for the accuracy (0: none), repetitions of the timing
#   scripts/bench_1_vs_2.sh --quick                         a few images: shows that everything works; its times say nothing
#   scripts/bench_1_vs_2.sh --built FOLDER   uses the program in that build folder; must come first
#   ARG...                                   flags of scripts/compare/one_vs_two.py (see its --help)
#
# Exit code: 0 all is well, 1 a check has failed, 2 usage, 7 output file; otherwise the code of the command that failed.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"

help_first "$@"
command -v python3 >/dev/null || die "there is no python3, which makes the table" "apt-get install python3"
find_build lockstep_cli "$@"
exec python3 "$root/scripts/compare/one_vs_two.py" --lockstep "$built/lockstep" "${arguments[@]}"
