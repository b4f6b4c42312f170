#!/usr/bin/env bash
# cmake_messages.sh CASE: configures lockstep with a fake LibTorch that has one fault, and checks lockstep's message with its
# remedy. INCLUDE_FOLDER, LIBRARY: a folder of headers and a library in place of those that are not tested.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
torch=$work/torch
export XDG_CACHE_HOME=$work/cache

# A folder with everything that a configure run looks at.
make_torch() {
  mkdir -p "$torch"/{lib,include/ATen,include/torch/csrc/api/include/torch}
  touch "$torch"/include/{ATen/ATen.h,torch/csrc/api/include/torch/torch.h}
  echo 'a string of the new ABI: _ZNSt7__cxx1112basic_string' | tee "$torch"/lib/lib{c10,torch_cpu}.so >/dev/null
  printf "__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n" >"$torch/version.py"
}

add_cuda() {  # add_cuda VERSION
  touch "$torch"/lib/lib{torch,c10}_cuda.so
  printf "__version__ = '2.11.0+cu%s'\ncuda: Optional[str] = '%s'\n" "${1/./}" "$1" >"$torch/version.py"
}

configure() {
  local status=0
  cmake -S "$root" -B "$work/build" -G Ninja "-DLOCKSTEP_BUILD_TORCH=$torch" "$@" >"$work/output" 2>&1 || status=$?
  return "$status"
}

show() {
  echo "$1. The output of the configure run:"
  cat "$work/output"
  exit 1
}

# CMake indents and wraps messages: texts are compared without white space.
says() {
  local text
  for text in "$@"; do
    tr -d '[:space:]' <"$work/output" | grep -qF "$(tr -d '[:space:]' <<<"$text")" || show "expected \"$text\""
  done
}

refuses() {  # refuses TEXT... [-- ARGUMENT...]
  local texts=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    texts+=("$1")
    shift
  done
  [ $# -eq 0 ] || shift
  ! configure "-DLOCKSTEP_BUILD_CUDA=off" "$@" || show "expected the configure run to fail"
  says "${texts[@]}"
  [ "$(grep -c '^CMake Error' "$work/output")" -eq 1 ] || show "expected one error"
}

# Flags that make all libraries missing except the named ones.
with_libraries() {
  local name arguments=(-DCMAKE_FIND_ROOT_PATH=/nowhere -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY
    -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY "-DLOCKSTEP_zlib_LIBRARY=$LIBRARY" "-DLOCKSTEP_fmt_LIBRARY=$LIBRARY"
    "-DLOCKSTEP_crypto_LIBRARY=$LIBRARY" "-DLOCKSTEP_png_LIBRARY=$LIBRARY" "-DLOCKSTEP_jpeg_LIBRARY=$LIBRARY"
    "-DLOCKSTEP_jemalloc_LIBRARY=$LIBRARY" "-DLOCKSTEP_Catch2_LIBRARY=$LIBRARY")
  for name in "$@"; do
    arguments+=("-DLOCKSTEP_${name}_INCLUDE=$INCLUDE_FOLDER")
  done
  printf '%s\n' "${arguments[@]}"
}

# Each library with its package.
declare -A package=([zlib]=zlib1g-dev [crypto]=libssl-dev [fmt]=libfmt-dev [png]=libpng-dev [jpeg]=libjpeg-dev [jemalloc]=libjemalloc-dev
  [spdlog]=libspdlog-dev [CLI11]=libcli11-dev [json]=nlohmann-json3-dev
  [tomlplusplus]=libtomlplusplus-dev [xxhash]=libxxhash-dev [Catch2]=catch2)

missing() {  # missing NAME
  local name arguments others=()
  make_torch
  for name in "${!package[@]}"; do
    [ "$name" = "$1" ] || others+=("$name")
  done
  mapfile -t arguments < <(with_libraries "${others[@]}")
  refuses "these libraries were not found: $1 fix:" "apt-get install ${package[$1]}" -- -DLOCKSTEP_BUILD_TESTS=on "${arguments[@]}"
}

case_no_torch() {
  torch=
  refuses "no LibTorch: LOCKSTEP_BUILD_TORCH is not set" "fix: scripts/setup.sh, or -DLOCKSTEP_BUILD_TORCH="
}
case_no_torch_folder() {
  refuses "$torch is not a LibTorch folder: it has neither version.py nor build-version" "fix: -DLOCKSTEP_BUILD_TORCH="
}
wrong_version() {
  refuses "LibTorch $1 in $torch, but lockstep was tested only with 2.11 and 2.15" "or leave it out and run scripts/setup.sh" \
    "LOCKSTEP_BUILD_TORCH_UNTRIED=on builds with this one anyway"
}
case_wrong_version_pip() {
  mkdir "$torch"
  printf "from typing import Optional\n__version__ = '2.10.1+cu128'\ndebug = False\n" >"$torch/version.py"
  wrong_version 2.10.1+cu128
}
case_wrong_version_zip() {
  mkdir "$torch"
  echo 2.9.0+cpu >"$torch/build-version"
  wrong_version 2.9.0+cpu
}
case_wrong_version_headers() {
  mkdir -p "$torch/include/torch/headeronly"
  printf '#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION \\\n  "2.12.0"\n' >"$torch/include/torch/headeronly/version.h"
  wrong_version 2.12.0
}
case_untried() {
  local arguments
  make_torch
  printf "__version__ = '2.16.1+cpu'\ncuda: Optional[str] = None\n" >"$torch/version.py"
  mapfile -t arguments < <(with_libraries zlib crypto fmt png jpeg jemalloc spdlog CLI11 json tomlplusplus xxhash)
  wrong_version 2.16.1+cpu
  configure -DLOCKSTEP_BUILD_CUDA=off -DLOCKSTEP_BUILD_TORCH_UNTRIED=on "${arguments[@]}" || show "expected it to configure"
  says "torch 2.16.1+cpu in $torch, which lockstep was not tested with"
}
case_tried() {
  local arguments version
  mapfile -t arguments < <(with_libraries zlib crypto fmt png jpeg jemalloc spdlog CLI11 json tomlplusplus xxhash)
  for version in 2.11.0+cpu 2.15.1+cpu; do
    make_torch
    printf "__version__ = '%s'\ncuda: Optional[str] = None\n" "$version" >"$torch/version.py"
    configure -DLOCKSTEP_BUILD_CUDA=off "${arguments[@]}" || show "expected it to configure"
    says "torch $version in $torch -- cuda"
  done
}
case_no_headers() {
  make_torch
  rm -r "$torch/include"
  refuses "LibTorch in $torch is incomplete: no include/ATen/ATen.h"
}
case_no_library() {
  make_torch
  rm "$torch/lib/libtorch_cpu.so"
  refuses "LibTorch in $torch is incomplete: no lib/libtorch_cpu.so"
}
case_old_abi() {
  make_torch
  echo _ZNSs4swapERSs >"$torch/lib/libc10.so"
  refuses "LibTorch in $torch was built with the old C++ ABI"
}
case_cpu_torch_with_cuda() {
  make_torch
  refuses "CUDA is on, but LibTorch 2.11.0+cpu in $torch is a CPU-only build" "fix: -DLOCKSTEP_BUILD_CUDA=off" -- \
    -DLOCKSTEP_BUILD_CUDA=on
}
case_no_cuda_compiler() {  # of a major version that does not exist
  make_torch
  add_cuda 99.1
  refuses "CUDA is on, but there is no CUDA 99 compiler" "scripts/setup.sh, or -DCMAKE_CUDA_COMPILER=" -- \
    -DLOCKSTEP_BUILD_CUDA=on
}
case_cuda_value() { refuses "LOCKSTEP_BUILD_CUDA is 'maybe', expected auto, on or off" -- -DLOCKSTEP_BUILD_CUDA=maybe; }
case_all_missing_at_once() {
  local arguments
  make_torch
  mapfile -t arguments < <(with_libraries)
  refuses "these libraries were not found: zlib, crypto, fmt, png, jpeg, jemalloc, spdlog, CLI11, json, tomlplusplus, xxhash, Catch2" \
    "apt-get install zlib1g-dev libssl-dev libfmt-dev libpng-dev libjpeg-dev libjemalloc-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev libxxhash-dev catch2" -- -DLOCKSTEP_BUILD_TESTS=on "${arguments[@]}"
}
case_no_tests_without_catch() {
  local arguments
  make_torch
  mapfile -t arguments < <(with_libraries zlib crypto fmt png jpeg jemalloc spdlog CLI11 json tomlplusplus xxhash)
  configure -DLOCKSTEP_BUILD_CUDA=off "${arguments[@]}" || show "expected it to configure"
  says "tests off: there is no Catch2 (scripts/setup.sh --tests, or apt-get install catch2)"
  configure -DLOCKSTEP_BUILD_CUDA=off -DLOCKSTEP_BUILD_TESTS=off "${arguments[@]}" || show "expected it to configure"
  says "tests off: LOCKSTEP_BUILD_TESTS=off"
}
case_batch_value() { refuses "LOCKSTEP_BUILD_BATCH is 'many', expected a number from 1" -- -DLOCKSTEP_BUILD_BATCH=many; }
case_tests_value() {
  make_torch
  refuses "LOCKSTEP_BUILD_TESTS is 'maybe', expected auto, on or off" -- -DLOCKSTEP_BUILD_TESTS=maybe
}
case_table() {
  local arguments
  make_torch
  mapfile -t arguments < <(with_libraries zlib crypto fmt png jpeg jemalloc spdlog CLI11 json tomlplusplus xxhash Catch2)
  configure -DLOCKSTEP_BUILD_CUDA=off "${arguments[@]}" || show "expected it to configure"
  says "Release" "torch 2.11.0+cpu in $torch" "cuda off: LOCKSTEP_BUILD_CUDA=off" "tests on" "sanitizers off" \
    "cairo off, so 'plot' cannot draw: not found (apt-get install libcairo2-dev)"
  # A driver is there, but this torch has no CUDA: that is no error, and the table says why.
  mkdir "$work/bin"
  printf '#!/bin/sh\n' >"$work/bin/nvidia-smi"
  chmod +x "$work/bin/nvidia-smi"
  PATH=$work/bin:$PATH configure -DLOCKSTEP_BUILD_CUDA=auto "${arguments[@]}" || show "expected it to configure"
  says "cuda off: this LibTorch is a CPU-only build"
}
case_ccache() {
  local arguments
  make_torch
  mapfile -t arguments < <(with_libraries zlib crypto fmt png jpeg jemalloc spdlog CLI11 json tomlplusplus xxhash)
  arguments+=(-DLOCKSTEP_BUILD_CUDA=off)
  printf '#!/bin/sh\nexec "$@"\n' >"$work/ccache"
  chmod +x "$work/ccache"
  configure "${arguments[@]}" "-DLOCKSTEP_CCACHE=$work/ccache" || show "expected it to configure"
  says "ccache on: $work/ccache"
  configure "${arguments[@]}" -DCMAKE_CXX_COMPILER_LAUNCHER=/usr/bin/env || show "expected it to configure"
  says "ccache not set by lockstep: CMAKE_CXX_COMPILER_LAUNCHER is /usr/bin/env"
  configure "${arguments[@]}" -DCMAKE_CXX_COMPILER_LAUNCHER= -DLOCKSTEP_CCACHE= || show "expected it to configure"
  says "ccache off: not installed"
  # In another project lockstep sets no launcher.
  mkdir "$work/outer"
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(outer CXX)\nadd_subdirectory("%s" lockstep)\n' "$root" \
    >"$work/outer/CMakeLists.txt"
  cmake -S "$work/outer" -B "$work/outer/build" -G Ninja "-DLOCKSTEP_BUILD_TORCH=$torch" "${arguments[@]}" \
    "-DLOCKSTEP_CCACHE=$work/ccache" >"$work/output" 2>&1 || show "expected it to configure"
  says "ccache off: the outer project sets no CMAKE_CXX_COMPILER_LAUNCHER"
}

case $1 in
  missing_*) missing "${1#missing_}" ;;
  *) "case_$1" ;;
esac
