#!/usr/bin/env bash
# scripts/setup.sh: installs what building and running lockstep needs. run.sh and test.sh call it. Running it again costs
# nothing.
#
#   scripts/setup.sh                 Debian packages, LibTorch, and for CUDA the compiler
#   scripts/setup.sh --tests         also Catch2 and mold for the tests and, as root, the launchers that they start (without
#                                    these they are skipped); scripts/test.sh passes this
#   scripts/setup.sh --lint          also clang, clang-format and clang-tidy (100 MB); scripts/test.sh --all passes this
#   scripts/setup.sh --python        also Python with torch and tensorboard; prints the path of the interpreter.
#                                    --python=2.11.0: with this version of torch
#   scripts/setup.sh --cuda-compiler also the CUDA compiler and NCCL, where CUDA is off
#   scripts/setup.sh --install DIR   also builds lockstep and installs it into DIR (bin/, lib/, include/, ...), where it needs
#                                    neither this folder nor the downloads; an older version there is replaced
#   scripts/setup.sh --bundle DIR    libraries and data set for a machine without network (use: LOCKSTEP_BUILD_BUNDLE=DIR,
#                                    LOCKSTEP_DATA=DIR/fashion-mnist, and LOCKSTEP_BUILD_TORCH=...)
#   scripts/setup.sh --clean         removes all downloads
#   --quiet                          prints nothing when there is nothing to do
#
# Downloads are kept in ${XDG_CACHE_HOME:-~/.cache}/lockstep. Environment:
#   LOCKSTEP_BUILD_CUDA=auto|on|off  auto: CUDA where an NVIDIA driver is installed
#   LOCKSTEP_BUILD_TORCH=PATH        uses this site-packages/torch or libtorch folder, downloads none
#   LOCKSTEP_BUILD_TORCH_UNTRIED=on  accepts any version of it
#   LOCKSTEP_BUILD_BUNDLE=PATH       uses the libraries of this bundle, installs none
# Exit code: 0 when everything is there, 1 when something is missing (with a message what to do), 2 for a wrong argument.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"

check_system() {
  if [ "$(uname -s)" != Linux ] || [ "$(uname -m)" != x86_64 ]; then
    die "lockstep runs on x86-64 Linux; this machine is $(uname -s) on $(uname -m)"
  fi
}

# Prints Debian's version, 0 on other systems.
debian_version() (
  ID='' VERSION_ID=99  # Debian's unstable has no number
  # shellcheck disable=SC1091  # not a file of this tree
  [ -r /etc/os-release ] && source /etc/os-release
  [ "$ID" = debian ] && echo "${VERSION_ID%%.*}" || echo 0
)

# Debian 13's static libcrypto, for bundles, calls zstd.
crypto_needs_zstd() { [ "$(debian_version)" -ge 13 ]; }

# A clang, 16 or newer, that this Debian has: a test compiles the public headers with it.
clang_package() {
  case $(debian_version) in
    12) echo clang-16=clang++-16 ;;
    13) echo clang-19=clang++-19 ;;
  esac
}

# missing_packages FETCHES: prints the Debian packages whose file or command is missing. Files and commands, not packages:
# they may come from elsewhere.
missing_packages() {
  local pair fetches=$1
  local needs="g++=g++ cmake=cmake ninja-build=ninja"
  local libraries="zlib1g-dev=zlib.h libssl-dev=openssl/evp.h libfmt-dev=fmt/core.h libjemalloc-dev=jemalloc/jemalloc.h
    libspdlog-dev=spdlog/spdlog.h libcli11-dev=CLI/CLI.hpp nlohmann-json3-dev=nlohmann/json.hpp
    libtomlplusplus-dev=toml++/toml.h libxxhash-dev=xxhash.h libpng-dev=png.h libjpeg-dev=jpeglib.h
    libcairo2-dev=cairo/cairo.h"
  if [ -z "${LOCKSTEP_BUILD_BUNDLE:-}" ]; then
    needs+=" ccache=ccache $libraries"
    [ "$want_lint" = no ] || needs+=" clang-format=clang-format clang-tidy=clang-tidy $(clang_package)"
    [ "$want_tests" = no ] || needs+=" mold=mold catch2=catch2/catch_all.hpp|catch2/catch.hpp"  # of version 3, of version 2
    [ "$want_tests" = no ] || [ -n "$bundle" ] || [ "$(id -u)" -ne 0 ] ||
      needs+=" openmpi-bin=mpirun.openmpi mpich=mpirun.mpich slurmctld=slurmctld slurmd=slurmd slurm-client=srun
      munge=munged iproute2=ip"
    [ "$want_tests" = no ] || ! crypto_needs_zstd || needs+=" libzstd-dev=zstd.h"
    [ -n "${LOCKSTEP_DATA:-}" ] || needs+=" dataset-fashion-mnist=$debian_data/train-images-idx3-ubyte.gz"
  fi
  [ -z "$fetches" ] || needs+=" python3-pip=pip3"
  for pair in $needs; do
    found "${pair#*=}" || echo "${pair%%=*}"
  done
}

found() {
  case $1 in
    *"|"*) found "${1%%|*}" || found "${1#*|}" ;;
    /*) [ -e "$1" ] ;;
    *.h | *.hpp) [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ] ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

install_packages() {
  local missing as_root=()
  missing=$(missing_packages "$1" | tr '\n' ' ')
  missing=${missing% }
  [ -n "$missing" ] || return 0
  if ! command -v apt-get >/dev/null; then
    die "missing on this machine, which has no apt-get: $missing" "install them (the names are Debian's)"
  fi
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null || { [ ! -t 0 ] && ! sudo -n true 2>/dev/null; }; then
      die "these Debian packages are missing, and installing them takes root: $missing" \
        "as root: apt-get update && apt-get install -y --no-install-recommends $missing"
    fi
    sudo -v || die "sudo was refused"
    as_root=(sudo)
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive)
  step "read Debian's package lists" "apt-get update, as root; check the network and /etc/apt" \
    "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=600 update
  # shellcheck disable=SC2086  # several packages
  step "install Debian packages" "apt-get install $missing, as root" \
    "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends $missing
}

# Prints the downloads that are missing, in their order.
list_fetches() {
  if [ "$want_python" = yes ] || { [ -z "${LOCKSTEP_BUILD_TORCH:-}" ] && cuda_wanted; }; then
    complete "$torch_full" || echo full
  fi
  if [ -z "${LOCKSTEP_BUILD_TORCH:-}" ] && ! cuda_wanted; then
    complete "$torch_cpu" || echo cpu
  fi
  if cuda_wanted || [ "$want_nvcc" = yes ]; then
    cuda_tools_complete || echo nvcc
  fi
}

# Succeeds if the compiler and NCCL are there, each from a download or from elsewhere.
cuda_tools_complete() {
  local fetched=/nowhere
  ! complete "$nvcc_install" || fetched=$nvcc_install
  { [ -e "$fetched/nvidia/cu13/bin/nvcc" ] || system_nvcc; } &&
    { [ -e "$fetched/nvidia/nccl/include/nccl.h" ] || nccl_elsewhere; }
}

# Succeeds if NCCL is on the system, beside the torch in use, or beside the full torch that this call downloads.
nccl_elsewhere() {
  [ -e /usr/include/nccl.h ] || [ -e "$(torch_folder)/../nvidia/nccl/include/nccl.h" ] ||
    { [ -z "${LOCKSTEP_BUILD_TORCH:-}" ] && { [ "$want_python" = yes ] || cuda_wanted; }; }
}

need_space() {
  local free
  mkdir -p "$cache"
  free=$(df -Pk "$cache" | awk 'NR == 2 { print int($4 / 1000000) }')
  [ "$free" -ge "$1" ] || die "$cache has $free GB free, this download needs $1 GB" \
    "free some space, or point XDG_CACHE_HOME at a larger disk"
}

# Respects the user's pip settings (index, proxy, certificates), except those that contradict --target. Temporary files go
# into the cache: /tmp may be small or in memory.
pip() {
  mkdir -p "$cache/tmp"
  TMPDIR=$cache/tmp PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 python3 -m pip --disable-pip-version-check --no-input \
    --no-cache-dir "$@"
}

pip_into() {
  local folder=$1
  shift
  pip install --target "$folder" --no-compile --progress-bar off "$@"
}

install_python() {
  python3 -m venv --without-pip "$torch_full" &&
    pip --python "$torch_full/bin/python" install --no-compile --progress-bar off "torch==$full_version" numpy safetensors \
      tensorboard
}

# One call for both: pip does not merge into an existing folder.
install_nvcc() {
  local packages=()
  # All extras: for nvcc alone pip takes parts of a newer release, which do not fit.
  system_nvcc || packages+=('cuda-toolkit[nvcc,crt,nvvm,cccl,cudart,nvtx]==13.2.2')
  nccl_elsewhere || packages+=("nvidia-nccl-cu13==$nccl_version")
  pip_into "$nvcc_install" "${packages[@]}" || return
  # nvcc looks for its libraries in lib64; the packages put them into lib.
  [ ! -e "$nvcc_install/nvidia/cu13" ] || ln -s lib "$nvcc_install/nvidia/cu13/lib64"
}

# fetch NAME GIGABYTES FOLDER FILE COMMAND...: runs a download. FILE, inside FOLDER, must exist afterwards.
fetch() {
  local name=$1 folder=$3 file=$4 gigabytes=$2
  shift 4
  need_space "$gigabytes"
  rm -rf "$folder"
  step "fetch $name" "run the same again; if pip cannot reach the network, see its settings: pip config list" "$@"
  # shellcheck disable=SC2086  # a pattern
  ls "$folder"/$file >/dev/null 2>&1 || die "pip installed $name, but there is no $folder/$file" "report this as a bug"
  rm -rf "$cache/tmp"
  date >"$folder/complete"
}

fetch_one() {
  case $1 in
    cpu)
      # Two NVIDIA packages, because libtorch_cpu.so needs their libraries; the other 3.5 GB are for GPUs only.
      fetch "LibTorch $torch_version (CPU, 540 MB)" 3 "$torch_cpu" torch/lib/libtorch_cpu.so \
        pip_into "$torch_cpu" --no-deps "torch==$torch_version" nvidia-cuda-cupti==13.2.86 nvidia-cuda-runtime==13.2.86
      ;;
    full)
      fetch "torch $full_version (CUDA, 2.5 GB)" 9 "$torch_full" 'lib/python3*/site-packages/torch/lib/libtorch_cuda.so' \
        install_python
      ;;
    nvcc)
      local proof=nvidia/nccl/include/nccl.h
      ! nccl_elsewhere || proof=nvidia/cu13/bin/nvcc
      fetch "CUDA compiler and NCCL (300 MB)" 2 "$nvcc_install" "$proof" install_nvcc
      ;;
  esac
}

set_up() {
  local item fetches
  fetches=$(list_fetches)
  install_packages "$fetches"
  for item in $fetches; do
    fetch_one "$item"
  done
}

# Checked without the lock; set_up checks again with it.
nothing_to_do() { [ -z "$(missing_packages "")" ] && [ -z "$(list_fetches)" ]; }

clean() {
  [ -d "$cache" ] || { say "nothing to remove: there is no $cache"; return; }
  local size
  size=$(du -sh "$cache" | cut -f1)
  rm -rf "$cache"
  say "removed $size: $cache"
}

# Before anything is fetched or built. DIR need not exist.
need_writable() {
  local there=$1
  while [ ! -e "$there" ]; do
    there=$(dirname "$there")
  done
  [ -d "$there" ] || die "cannot install into $1: $there is not a folder" "name another folder"
  [ -w "$there" ] || die "cannot install into $1: you may not write to $there" \
    "name another folder, or as root: scripts/setup.sh --install $1"
}

build_and_install() {
  build release "lockstep_cli lockstep_shared lockstep_images_shared"
  step "install" "the message above" cmake --install "$root/build/release" --prefix "$1"
  say "installed: $1/bin/lockstep"
}

want_tests=no want_lint=no want_python=no want_nvcc=no quiet=no bundle='' install='' full_version=$torch_version
while [ $# -gt 0 ]; do
  case $1 in
    --tests) want_tests=yes ;;
    --lint) want_lint=yes ;;
    --python) want_python=yes ;;
    --python=*)
      full_version=${1#*=}
      need_value "a version" --python ${full_version:+"$full_version"}
      want_python=yes torch_full=$cache/torch-$full_version-full
      ;;
    --cuda-compiler) want_nvcc=yes ;;
    --bundle)
      need_value "a folder" "$@"
      bundle=$2 want_tests=yes
      shift
      ;;
    --install)
      need_value "a folder" "$@"
      install=$(realpath -m "$2")
      shift
      ;;
    --clean)
      locked "$cache.lock" clean
      exit
      ;;
    --quiet) quiet=yes ;;
    --help | -h) help_first "$1" ;;
    *) usage "unknown argument '$1'" ;;
  esac
  shift
done

check_system
cuda_wanted || true  # exits for a wrong LOCKSTEP_BUILD_CUDA
[ -z "$install" ] || need_writable "$install"
if ! nothing_to_do; then
  locked "$cache.lock" set_up
elif [ "$quiet" = no ]; then
  say "everything is set up"
fi
if [ -n "$bundle" ]; then
  source "$root/scripts/bundle.sh"
  make_bundle "$bundle"
fi
[ -z "$install" ] || build_and_install "$install"
[ "$want_python" = no ] || echo "$torch_full/bin/python"
