# Sourced by the scripts of this folder: where things are, what was asked for, and how a long step is shown.
# Everything these functions print goes to stderr: stdout belongs to the program that is run.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep
logs=$cache/log
torch_version=2.15.0
torch_cuda_major=13
torch_cpu=$cache/torch-$torch_version-cpu    # a plain folder; serves C++ without CUDA
torch_full=$cache/torch-$torch_version-full  # a Python environment with all that torch loads; CUDA and Python need it
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

# The comment at the head of the calling script is its help.
show_help() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$1"; }

# An install is complete when its mark is there, which is written last.
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

# The same for torch, without which a comparison is skipped.
need_python_torch() {
  find_python torch && return
  say "skipped: no Python torch to compare with; scripts/setup.sh --python gets one"
  exit 77
}

# The LibTorch folder in use: the one that was named, or what was fetched.
torch_folder() {
  local folder=${LOCKSTEP_BUILD_TORCH:-$torch_cpu/torch}
  if [ -z "${LOCKSTEP_BUILD_TORCH:-}" ] && complete "$torch_full"; then
    folder=$(echo "$torch_full"/lib/python3*/site-packages/torch)
  fi
  echo "$folder"
}

# A CUDA compiler of torch's major version that is on the machine already.
system_nvcc() {
  local nvcc
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    if [ -x "$nvcc" ] && "$nvcc" --version 2>/dev/null | grep -q "release $torch_cuda_major\."; then
      return 0
    fi
  done
  return 1
}

# progress NAME LOG PID: shows that process PID is alive until it is gone or this is killed. From the third second on:
# a line that counts on a terminal, elsewhere one line now and one every 15 s.
progress() {
  local name=$1 log=$2 pid=$3 next=2 clock detail
  exec {clock}<> <(:)  # reading it with a time limit is a sleep that leaves no process behind
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

# watched NAME LOG COMMAND...: runs the command with its output in LOG, showing meanwhile that it is alive.
watched() {
  local name=$1 log=$2 status=0 started=$SECONDS ticker
  shift 2
  : >"$log"
  (SECONDS=0 && progress "$name" "$log" $$) &
  ticker=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  # Not with TERM: a child that has hardly begun would still run this shell's EXIT trap.
  { kill -KILL "$ticker"; wait "$ticker"; } 2>/dev/null || true
  [ ! -t 2 ] || printf '\r\033[K' >&2
  [ "$status" -ne 0 ] || [ $((SECONDS - started)) -lt 3 ] || say "$name: done in $((SECONDS - started)) s"
  return "$status"
}

# step NAME REMEDY COMMAND...: the same with a log of its own; if it fails, names step, log and remedy, and ends the run.
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

# locked FILE COMMAND...: runs it while no other process holds FILE's lock.
locked() {
  local file=$1
  shift
  mkdir -p "$(dirname "$file")"
  (
    flock -n 9 || { say "waiting for another run to finish (it holds $file)"; flock 9; }
    "$@"
  ) 9>"$file"
}
