# Sourced by the scripts of this folder: paths, switches, and the display of long steps. These functions print to stderr:
# stdout belongs to the program.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep
logs=$cache/log
torch_version=2.15.0
torch_cuda_major=13
torch_cpu=$cache/torch-$torch_version-cpu    # a plain folder, for C++ without CUDA
torch_full=$cache/torch-$torch_version-full  # a Python environment with all of torch, for CUDA and Python
nccl_version=2.30.7                          # torch's
nvcc_install=$cache/nvcc-13.2.2-nccl-$nccl_version
debian_data=/usr/share/datasets/fashion-mnist
export CCACHE_DIR=${CCACHE_DIR:-$cache/ccache}

say() { printf 'lockstep: %s\n' "$*" >&2; }

# die WHAT [REMEDY]
die() {
  say "$1"
  [ $# -lt 2 ] || say "fix: $2"
  exit 1
}

# Prints the comment at the head of the script that was started.
show_help() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[-1]}"; }

# help_first ARG...: prints the help and exits where the first argument asks for it.
help_first() {
  case ${1:-} in
    --help | -h)
      show_help
      exit
      ;;
  esac
}

# usage WHAT: says what is wrong with the arguments, prints the help, and exits with 2.
usage() {
  say "$1"
  show_help >&2
  exit 2
}

# need_value KIND FLAG [VALUE...]: the flag must have a value, "a folder" for example.
need_value() { [ -n "${3:-}" ] || usage "$2 needs $1"; }

# Succeeds if an install is complete: its mark is written last.
complete() { [ -e "$1/complete" ]; }

# cmake/LockstepOptions.cmake looks for a driver in the same places.
driver_installed() {
  [ -e /proc/driver/nvidia/version ] || command -v nvidia-smi >/dev/null ||
    [ -e /usr/lib/x86_64-linux-gnu/libcuda.so.1 ] || [ -e /usr/lib64/libcuda.so.1 ] ||
    [ -e /usr/lib/libcuda.so.1 ] || [ -e /usr/lib/wsl/lib/libcuda.so.1 ]
}

cuda_wanted() {
  case ${LOCKSTEP_BUILD_CUDA:-auto} in
    on) ;;
    off) return 1 ;;
    auto) driver_installed ;;
    *) die "LOCKSTEP_BUILD_CUDA is '$LOCKSTEP_BUILD_CUDA', expected auto, on or off" "unset LOCKSTEP_BUILD_CUDA" ;;
  esac
}

# Sets `python` to LOCKSTEP_PYTHON, or else what `scripts/setup.sh --python` fetched; fails where that lacks these modules.
find_python() {
  python=${LOCKSTEP_PYTHON:-$torch_full/bin/python}
  "$python" -c 'import sys, importlib.util as util
sys.exit(not all(map(util.find_spec, sys.argv[1:])))' "$@" 2>/dev/null
}

# The same for torch; without it the script exits with 77.
need_python_torch() {
  find_python torch && return
  say "skipped: no Python torch to compare with; scripts/setup.sh --python gets one"
  exit 77
}

# Prints the LibTorch folder in use: LOCKSTEP_BUILD_TORCH or the downloaded one.
torch_folder() {
  local folder=${LOCKSTEP_BUILD_TORCH:-$torch_cpu/torch}
  if [ -z "${LOCKSTEP_BUILD_TORCH:-}" ] && complete "$torch_full"; then
    folder=$(echo "$torch_full"/lib/python3*/site-packages/torch)
  fi
  echo "$folder"
}

# Succeeds if the machine has a CUDA compiler of torch's major version.
system_nvcc() {
  local nvcc
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    if [ -x "$nvcc" ] && "$nvcc" --version 2>/dev/null | grep -q "release $torch_cuda_major\."; then
      return 0
    fi
  done
  return 1
}

# progress NAME LOG PID: shows that process PID is alive, until it ends or this is killed. Begins after two seconds: on a
# terminal one line that counts, elsewhere one line now and one every 15 s.
progress() {
  local name=$1 log=$2 pid=$3 next=2 clock detail
  exec {clock}<> <(:)  # a read with a time limit sleeps without a process of its own
  while kill -0 "$pid" 2>/dev/null; do
    if [ "$SECONDS" -ge "$next" ]; then
      detail=$(tail -n 1 "$log" 2>/dev/null | grep -o '^\[[0-9]*/[0-9]*\]' || true)
      if [ -t 2 ]; then
        printf '\rlockstep: %s, %s s %s\033[K' "$name" "$SECONDS" "$detail" >&2
      elif [ "$next" = 2 ]; then
        say "$name ..."
        next=15
      else
        say "$name: at work for $SECONDS s $detail"
        next=$((next + 15))
      fi
    fi
    read -r -t 0.5 -u "$clock" || true
  done
}

# watched NAME LOG COMMAND...: runs the command with its output in LOG and shows its progress.
watched() {
  local name=$1 log=$2 status=0 started=$SECONDS ticker
  shift 2
  : >"$log"
  (SECONDS=0 && progress "$name" "$log" $$) &
  ticker=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  # Not TERM: a child that has just started would run this shell's EXIT trap.
  { kill -KILL "$ticker"; wait "$ticker"; } 2>/dev/null || true
  [ ! -t 2 ] || printf '\r\033[K' >&2
  [ "$status" -ne 0 ] || [ $((SECONDS - started)) -lt 3 ] || say "$name: done in $((SECONDS - started)) s"
  return "$status"
}

# step NAME REMEDY COMMAND...: the same with its own log. If the command fails, prints the log's end and the remedy, and
# exits with 1.
step() {
  local name=$1 remedy=$2 status=0 log=$logs/${1//[^a-zA-Z0-9]/-}.log
  shift 2
  mkdir -p "$logs"
  watched "$name" "$log" "$@" || status=$?
  [ "$status" -ne 0 ] || return 0
  say "$name failed with exit code $status. The end of its log:"
  tail -n 30 "$log" | sed 's/^/  | /' >&2
  say "log: $log"
  say "fix: $remedy"
  exit 1
}

# locked FILE COMMAND...: runs the command with the lock of FILE; waits for it.
locked() {
  local file=$1
  shift
  mkdir -p "$(dirname "$file")"
  (
    flock -n 9 || { say "waiting for another run to finish (it holds $file)"; flock 9; }
    "$@"
  ) 9>"$file"
}
