#!/usr/bin/env bash
# scripts/gpu_check.sh [PART...] [--report DIR] [--built FOLDER]: builds and tests lockstep on a machine with an NVIDIA
# GPU, compares it with Python torch, and measures accuracy. Needs no network. Runs the first four parts, or those that
# are named:
#
#   build      configures and builds the program and all GPU tests in build/cuda, for the GPU of this machine
#   test       those tests; one step of each network beside its Python twin and beside double; two and four replicas on
#              one GPU; compute-sanitizer on the kernels' tests, where it works
#   compare    seconds from start to last line; then both networks beside Python torch (scripts/compare/compare_gpu.py)
#   accuracy   ten epochs of both networks with five seeds
#   lease SECONDS   for a machine that is lent for some minutes: of all that, and of each kernel's time, what tells most
#              first, within so many seconds. Uses what scripts/gpu_pack.sh packed, if it is there. A second call goes on
#              with the steps that are left; their state is in build/lease
#
#   --report DIR     folder for gpu_check.json, gpu_check.md, one log per part, the GPU's clocks and traces of kernels;
#                    default: build/gpu_check. A part that runs alone replaces its section of an existing report. The
#                    report is written after each step, and while one runs
#   --join DIR       adds the parts that only the report in DIR has; runs only the parts that are named
#   --built FOLDER   uses a build from another machine; the part build is left out
#   LOCKSTEP_BUILD_TORCH=PATH   LibTorch 2.11 or 2.15 with CUDA; default: the torch of Python
#   LOCKSTEP_PYTHON=PATH        a Python with torch; default: python3, or the one of scripts/setup.sh --python
#   LOCKSTEP_BUILD_BUNDLE=PATH  a bundle of scripts/setup.sh --bundle; default: the folder bundle of this checkout
#   LOCKSTEP_GPU_SECONDS=540    seconds per part; each step has a share of them. A step that takes longer is cut off,
#                               and the next one runs. Steps that were not run are listed
#
# Exit code: 0 when every step passed (goals of speed may be missed), 1 when one failed or there is no GPU, 2 usage.
here=$(dirname "${BASH_SOURCE[0]}")
source "$here/build.sh"
source "$here/gpu_check_steps.sh"
source "$here/gpu_check_parts.sh"
export LOCKSTEP_BUILD_TESTS=on

parse() {
  while [ $# -gt 0 ]; do
    case $1 in
      build | test | compare | accuracy) parts+=("$1") ;;
      lease)
        [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || usage "lease needs a number of seconds"
        parts+=(lease)
        lease_seconds=$2
        shift
        ;;
      --report | --built | --join)
        need_value "a folder" "$@"
        case $1 in
          --report) report=$2 ;;
          --built) brought=$2 ;;
          --join) joined+=("$2") ;;
        esac
        shift
        ;;
      --help | -h) help_first "$1" ;;
      *) usage "unknown argument '$1'" ;;
    esac
    shift
  done
}

# Unpacks what scripts/gpu_pack.sh packed. Its build and bundle are used unless others are named.
unpack() {
  local pack=$root/.gpu/pack.tar.xz unpacked=$lease/pack
  [ -n "$lease_seconds" ] && [ -e "$pack" ] || return 0
  if [ ! -d "$unpacked" ]; then
    rm -rf "$unpacked.part"
    mkdir -p "$unpacked.part"
    tar -C "$unpacked.part" -xJf "$pack" 2>/dev/null || "$python" -m tarfile -e "$pack" "$unpacked.part"  # without xz
    mv "$unpacked.part" "$unpacked"
  fi
  brought=${brought:-$unpacked/cuda}
  LOCKSTEP_BUILD_BUNDLE=${LOCKSTEP_BUILD_BUNDLE:-$unpacked/bundle}
}

find_python_with_torch() {
  for python in ${LOCKSTEP_PYTHON:+"$LOCKSTEP_PYTHON"} python3 "$torch_full/bin/python"; do
    LOCKSTEP_PYTHON=$python find_python torch && return
  done
  die "python3 has no torch" "LOCKSTEP_PYTHON=<a Python with torch 2.11 or 2.15 and CUDA> scripts/gpu_check.sh"
}

# Sets torch and bundle. A program that was linked against a torch at another path needs LD_LIBRARY_PATH.
use_torch() {
  local site
  LOCKSTEP_BUILD_TORCH=${LOCKSTEP_BUILD_TORCH:-$("$python" -c \
    'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')}
  site=$(dirname "$LOCKSTEP_BUILD_TORCH")
  [ -z "$brought" ] || export LD_LIBRARY_PATH=$LOCKSTEP_BUILD_TORCH/lib:$site/nvidia/cu13/lib:$site/nvidia/nccl/lib:$site/nvidia/cudnn/lib:${LD_LIBRARY_PATH:-}
  LOCKSTEP_BUILD_BUNDLE=${LOCKSTEP_BUILD_BUNDLE:-$([ ! -d "$root/bundle" ] || echo "$root/bundle")}
  if [ -n "$LOCKSTEP_BUILD_BUNDLE" ]; then
    export LOCKSTEP_DATA=${LOCKSTEP_DATA:-$(realpath "$LOCKSTEP_BUILD_BUNDLE")/fashion-mnist}
  fi
  export LOCKSTEP_BUILD_TORCH LOCKSTEP_BUILD_BUNDLE
}

parts=() joined=() report=$root/build/gpu_check lease=$root/build/lease lease_seconds='' brought='' passed=yes
parse "$@"
[ ${#parts[@]} -gt 0 ] || [ ${#joined[@]} -gt 0 ] || parts=(build test compare accuracy)
[ -z "$brought" ] || [ -x "$brought/lockstep" ] || usage "--built $brought: there is no program in that folder"
find_python_with_torch
if [ ${#parts[@]} -gt 0 ]; then
  nvidia-smi -L >/dev/null 2>&1 || die "no NVIDIA GPU answers on this machine" "run this where nvidia-smi -L lists one"
fi
unpack
built=$(realpath -m "${brought:-$root/build/cuda}")
use_torch
mkdir -p "$report"
report=$(cd "$report" && pwd)
cd "$root"
trap 'stop 130' INT
trap 'stop 143' TERM
for part in ${parts[@]+"${parts[@]}"}; do
  run_part
done
for folder in ${joined[@]+"${joined[@]}"}; do
  "$python" "$root/scripts/compare/gpu_report.py" "$report" --join "$folder" || passed=no
done
cat "$report/gpu_check.md"
say "report: $report/gpu_check.json and gpu_check.md"
[ "$passed" = yes ]
