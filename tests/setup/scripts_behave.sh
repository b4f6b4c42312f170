#!/usr/bin/env bash
# scripts_behave.sh CASE: runs scripts/setup.sh and others with fake commands in place of those that change the machine or
# need the network (apt-get, pip, uname, sudo, ...), and checks what they print, run and leave behind.
source "$(dirname "$0")/stand_ins.sh"
export XDG_CACHE_HOME=$work/cache LOCKSTEP_BUILD_CUDA=off
cpu=$XDG_CACHE_HOME/lockstep/torch-2.15.0-cpu

# Hides all other commands of the machine.
only_commands() {
  local name
  for name in awk bash cat date df dirname du env flock grep id ls mkdir mv rm sed tail touch tr true uname wc "$@"; do
    [ -e "$work/bin/$name" ] || ln -s "$(type -P "$name")" "$work/bin/$name"
  done
  PATH=$work/bin
}

# A fake pip that creates the folder it is asked for.
working_pip() {
  : | stand_in pip3
  stand_in python3 <<'STUB'
echo "python3 $*" >>"$calls"
site= nccl=
while [ $# -gt 0 ]; do
  [[ $1 != nvidia-nccl-* ]] || nccl=yes
  [ "$1" != --target ] || site=$2
  [ "$1" != --python ] || site=${2%/bin/python}/lib/python3.11/site-packages
  shift
done
[ -n "$site" ] || exit 0
mkdir -p "$site/torch/lib" "$site/nvidia/cu13/bin"
touch "$site"/torch/lib/libtorch_{cpu,cuda}.so "$site/nvidia/cu13/bin/nvcc"
[ -z "$nccl" ] || { mkdir -p "$site/nvidia/nccl/include" && touch "$site/nvidia/nccl/include/nccl.h"; }
STUB
}

setup() {  # setup CODE ARGUMENT...: its output goes to $work/output
  local code=$1 status=0
  shift
  "$root/scripts/setup.sh" "$@" >"$work/output" 2>&1 </dev/null || status=$?
  [ "$status" -eq "$code" ] || fail "expected exit code $code, found $status"
}

case_other_cpu() {
  stand_in uname <<<'[ "$1" = -m ] && echo aarch64 || echo Linux'
  setup 1
  says "lockstep runs on x86-64 Linux; this machine is Linux on aarch64"
  lines 1
}
case_other_system() {
  stand_in uname <<<'[ "$1" = -m ] && echo x86_64 || echo Darwin'
  setup 1
  says "this machine is Darwin on x86_64"
  lines 1
}
case_wrong_argument() {
  setup 2 --pyhton
  says "unknown argument '--pyhton'" "scripts/setup.sh --python"
}
case_wrong_cuda_value() {
  LOCKSTEP_BUILD_CUDA=maybe setup 1
  says "LOCKSTEP_BUILD_CUDA is 'maybe', expected auto, on or off"
}
case_needs_root() {
  stand_in id <<<'echo 1000'
  only_commands apt-get
  setup 1
  says "as root: apt-get update && apt-get install -y --no-install-recommends g++ cmake ninja-build"
  lines 2
}
case_lint_when_asked() {
  stand_in id <<<'echo 1000'
  only_commands apt-get
  setup 1 --lint
  says "clang-format clang-tidy"
  setup 1 --tests
  ! grep -q clang "$work/output" || fail "clang's tools are not for --tests"
}
case_no_apt() {
  only_commands
  setup 1
  says "missing on this machine, which has no apt-get: g++ cmake ninja-build"
}
case_sudo_installs() {
  working_pip
  stand_in id <<<'echo 1000'
  stand_in sudo <<<'echo "sudo $*" >>"$calls"; for last; do :; done; [ "$last" != ninja-build ] || touch "$work/bin/ninja"'
  stand_in apt-get </dev/null
  : | stand_in g++
  : | stand_in cmake
  : | stand_in ccache
  only_commands
  LOCKSTEP_BUILD_BUNDLE=$work setup 0  # with a bundle only tools are needed
  called 1 "apt-get -o DPkg::Lock::Timeout=600 update"
  called 1 "apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends ninja-build"
}
case_apt_fails() {
  stand_in id <<<'echo 0'
  stand_in apt-get <<<'echo "E: Temporary failure resolving the mirror"; exit 100'
  only_commands
  setup 1
  says "read Debian's package lists failed with exit code 100" "E: Temporary failure resolving the mirror" \
    "log: $XDG_CACHE_HOME/lockstep/log/" "fix: apt-get update, as root; check the network"
}
case_fetches_once() {
  working_pip
  setup 0 --quiet
  called 1 "--no-deps torch==2.15.0 nvidia-cuda-cupti==13.2.86 nvidia-cuda-runtime==13.2.86"
  [ -e "$cpu/complete" ] || fail "no mark of completion"
  setup 0 --quiet
  called 1 python3
  lines 0
  setup 0
  says "everything is set up"
}
case_interrupted_fetch_is_not_complete() {
  : | stand_in pip3
  stand_in python3 <<'STUB'
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/torch/lib"
touch "$2/torch/lib/libtorch_cpu.so" "$2/half"
kill -KILL $PPID $$  # the whole set-up, in the middle of it
STUB
  setup 137
  [ -e "$cpu/half" ] || fail "the stand-in did not run"
  [ ! -e "$cpu/complete" ] || fail "an interrupted fetch is marked as complete"
  working_pip
  setup 0 --quiet
  called 1 "--target $cpu"
  [ -e "$cpu/complete" ] || fail "no mark of completion"
  [ ! -e "$cpu/half" ] || fail "left-overs of the interrupted fetch"
}
case_failed_fetch_names_log() {
  : | stand_in pip3
  stand_in python3 <<<'echo "ERROR: Could not find a version"; exit 3'
  setup 1
  says "fetch LibTorch 2.15.0 (CPU, 540 MB) failed with exit code 3" "ERROR: Could not find a version" \
    "log: $XDG_CACHE_HOME/lockstep/log/fetch-LibTorch" "fix: run the same again"
  [ ! -e "$cpu/complete" ] || fail "a failed fetch is marked as complete"
}
case_pip_without_result() {
  : | stand_in pip3
  stand_in python3 <<<'exit 0'
  setup 1
  says "pip installed LibTorch" "but there is no $cpu/torch/lib/libtorch_cpu.so"
}
case_torch_given_is_not_fetched() {
  working_pip
  LOCKSTEP_BUILD_TORCH=$work/torch setup 0
  called 0 python3
}
case_full_for_cuda() {
  working_pip
  stand_in nvcc <<<'echo "Cuda compilation tools, release 12.4, V12.4.131"'  # of another major version: does not serve
  CUDACXX=$work/bin/nvcc LOCKSTEP_BUILD_CUDA=on setup 0
  called 1 "torch==2.15.0 numpy safetensors tensorboard"
  called 0 "--no-deps"
  if ! /usr/local/cuda/bin/nvcc --version 2>/dev/null | grep -q 'release 13'; then
    called 1 "cuda-toolkit[nvcc,crt,nvvm,cccl,cudart,nvtx]==13.2.2"
  fi
  called 0 nvidia-nccl  # it comes with torch
  [ "$("$root/scripts/setup.sh" --python 2>/dev/null)" = "$XDG_CACHE_HOME/lockstep/torch-2.15.0-full/bin/python" ] ||
    fail "--python does not print its interpreter"
}
case_python_of_another_version() {  # lies beside the others
  local fetched=$XDG_CACHE_HOME/lockstep/torch-2.11.0-full
  working_pip
  setup 0 --quiet --python=2.11.0
  called 1 "torch==2.11.0 numpy safetensors tensorboard"
  called 1 "--no-deps torch==2.15.0"
  [ -e "$fetched/complete" ] || fail "no mark of completion"
  [ "$("$root/scripts/setup.sh" --python=2.11.0 2>/dev/null)" = "$fetched/bin/python" ] ||
    fail "it does not print its interpreter"
  setup 0 --quiet --python
  called 1 "torch==2.15.0 numpy safetensors tensorboard"
}
case_nccl_without_its_torch() {  # NCCL is downloaded where neither torch nor the system has it
  if [ -e /usr/include/nccl.h ]; then
    echo "skipped: the system has NCCL"
    exit 77
  fi
  working_pip
  stand_in nvcc <<<'echo "Cuda compilation tools, release 13.0, V13.0.88"'
  mkdir -p "$XDG_CACHE_HOME/lockstep/nvcc-13.0.2/nvidia/cu13/bin"  # of an older set-up, which fetched no NCCL
  date >"$XDG_CACHE_HOME/lockstep/nvcc-13.0.2/complete"
  CUDACXX=$work/bin/nvcc setup 0 --quiet --cuda-compiler
  called 1 "nvidia-nccl-cu13==2.30.7"
  called 0 cuda-toolkit  # there is a compiler
  CUDACXX=$work/bin/nvcc setup 0 --quiet --cuda-compiler
  called 1 "nvidia-nccl-cu13==2.30.7"
  mkdir -p "$work/nvidia/nccl/include" "$work/torch"
  touch "$work/nvidia/nccl/include/nccl.h"
  rm -r "$XDG_CACHE_HOME"
  CUDACXX=$work/bin/nvcc LOCKSTEP_BUILD_TORCH=$work/torch setup 0 --quiet --cuda-compiler
  called 1 "nvidia-nccl-cu13==2.30.7"  # the torch that was named has it
}
case_waits_for_another_run() {
  local first
  working_pip
  mv "$work/bin/python3" "$work/bin/pip_work"
  # The first run's download ends when the second is seen waiting.
  stand_in python3 <<'STUB'
touch "$work/started"
until grep -q 'waiting for another run' "$work/output" 2>/dev/null; do :; done
exec "$work/bin/pip_work" "$@"
STUB
  "$root/scripts/setup.sh" >"$work/first" 2>&1 &
  first=$!
  until [ -e "$work/started" ]; do :; done
  setup 0
  wait "$first"
  called 1 "--target $cpu"
}
case_clean() {
  setup 0 --clean
  says "nothing to remove"
  mkdir -p "$XDG_CACHE_HOME/lockstep/torch-2.15.0-cpu"
  head -c 3000000 /dev/zero >"$XDG_CACHE_HOME/lockstep/torch-2.15.0-cpu/file"
  setup 0 --clean
  says "removed 2.9M: $XDG_CACHE_HOME/lockstep"
  [ ! -e "$XDG_CACHE_HOME/lockstep" ] || fail "the cache is still there"
}
case_progress_in_a_pipe() {  # after 45 s a step prints its time and the progress of the build
  printf '[3/40] Building\n' >"$work/log"
  source "$root/scripts/lib.sh"
  (SECONDS=45 && progress "build it" "$work/log" $$) >"$work/output" 2>&1 &
  until grep -q 'at work' "$work/output"; do :; done
  kill $!
  says "lockstep: build it ..." "lockstep: build it: at work for 4" "[3/40]"
}
case_step_passes_on() {  # a successful step prints nothing
  source "$root/scripts/lib.sh"
  step "try" "none" bash -c 'echo to the log; echo and this >&2' >"$work/output" 2>&1
  lines 0
  [ "$(cat "$logs/try.log")" = $'to the log\nand this' ] || fail "the log is not what the command printed"
}
# A copy of the scripts in $tree with fake set-up, build and tests.
scripts_alone() {
  tree=$work/tree
  mkdir "$tree"
  cp -r "$root/scripts" "$tree/"
  printf '#!/bin/sh\necho "setup.sh $*" >>"%s"\n' "$calls" >"$tree/scripts/setup.sh"
  stand_in cmake <<'STUB'
echo "cmake $*" >>"$calls"
mkdir -p "$work/tree/build/release"
touch "$work/tree/build/release/build.ninja"
cp /bin/true "$work/tree/build/release/lockstep"
STUB
  stand_in ctest <<<'while [ "$1" != --output-junit ]; do shift; done; touch "$2"; echo "100% tests passed"'
}
case_switches_are_passed_on() {
  scripts_alone
  LOCKSTEP_BUILD_TORCH=/my/torch LOCKSTEP_BUILD_TORCH_UNTRIED=on LOCKSTEP_BUILD_BATCH=24 "$tree/scripts/run.sh" train >"$work/output" 2>&1 ||
    fail "run.sh failed"
  called 1 "-DLOCKSTEP_BUILD_CUDA=off -DLOCKSTEP_BUILD_TORCH=/my/torch -DLOCKSTEP_BUILD_TORCH_UNTRIED=on -DLOCKSTEP_BUILD_BATCH=24"
}
case_configured_anew() {  # with another switch, also one that CMake reads from the environment
  scripts_alone
  local generations
  for generations in 80 90 90 "80 90"; do
    CUDAARCHS=$generations "$tree/scripts/run.sh" train >"$work/output" 2>&1 || fail "run.sh failed"
  done
  called 3 "cmake --preset release"
  "$tree/scripts/run.sh" train >"$work/output" 2>&1 || fail "run.sh failed"
  called 4 "cmake --preset release"
}
case_tests_when_asked() {  # the program needs no test library; a folder configured with tests is kept
  scripts_alone
  "$tree/scripts/run.sh" train >"$work/output" 2>&1 || fail "run.sh failed"
  called 1 "cmake --preset release"
  called 0 LOCKSTEP_BUILD_TESTS
  called 0 --tests
  "$tree/scripts/test.sh" >"$work/output" 2>&1 || fail "test.sh failed"
  called 1 "setup.sh --quiet --tests"
  called 2 "cmake --preset release"
  called 1 "-DLOCKSTEP_BUILD_TESTS=on"
  "$tree/scripts/run.sh" train >"$work/output" 2>&1 || fail "run.sh failed"
  "$tree/scripts/test.sh" >"$work/output" 2>&1 || fail "test.sh failed"
  called 2 "cmake --preset release"  # as it was
}
case_all_parts() {  # a build that was begun while other tests ran, and failed, is a failed part; the others run
  scripts_alone
  printf '#!/bin/sh\nexit 77\n' >"$tree/scripts/tidy.sh"
  stand_in cmake <<'STUB'
echo "cmake $*" >>"$calls"
case "$*" in
  --preset*) mkdir -p "$work/tree/build/$2" && touch "$work/tree/build/$2/build.ninja" ;;
  --build*/asan*) echo "no such header" && exit 1 ;;
esac
STUB
  local status=0
  "$tree/scripts/test.sh" --all >"$work/output" 2>&1 || status=$?
  [ "$status" = 1 ] || fail "expected exit code 1, found $status"
  says "build asan failed with exit code 1" "no such header" "asan: FAILED, see above" "release: 100% tests passed" \
    "tsan: 100% tests passed" "cuda: the library and its CUDA tests compiled and linked"
}
case_install() {  # sets up, builds the program and the library, and installs them
  scripts_alone
  cp "$root/scripts/setup.sh" "$tree/scripts/"
  working_pip
  "$tree/scripts/setup.sh" --install "$work/prefix" >"$work/output" 2>&1 || fail "setup.sh failed"
  called 1 "--target $cpu"
  called 1 "--target lockstep_cli lockstep_shared lockstep_images_shared"
  called 1 "cmake --install $tree/build/release --prefix $work/prefix"
  [ "$(tail -n 1 "$calls")" = "cmake --install $tree/build/release --prefix $work/prefix" ] || fail "it installs too early"
  says "lockstep: installed: $work/prefix/bin/lockstep"
  (cd "$work" && "$tree/scripts/setup.sh" --install there) >"$work/output" 2>&1 || fail "setup.sh failed"
  called 1 "--prefix $work/there"
}
case_install_refusals() {  # before anything is fetched
  setup 2 --install
  says "--install needs a folder"
  touch "$work/file"
  setup 1 --install "$work/file/prefix"
  says "cannot install into $work/file/prefix: $work/file is not a folder" "fix: name another folder"
  if [ "$(id -u)" -ne 0 ]; then
    mkdir -m 500 "$work/closed"
    setup 1 --install "$work/closed/prefix"
    says "cannot install into $work/closed/prefix: you may not write to $work/closed" "as root: scripts/setup.sh --install"
  fi
  called 0 python3
}
case_bundle() {
  local folder=$work/bundle libraries="-lfmt -lpng -ljpeg -lz -lcrypto -lm"
  if [ -n "${BUILT_WITH_BUNDLE:-}" ] || [ ! -e /usr/share/datasets/fashion-mnist ]; then
    echo "skipped: bundles are made of Debian's packages, which are not in use here"
    exit 77
  fi
  working_pip
  setup 0 --bundle "$folder"
  [ "$(du -sm "$folder" | cut -f1)" -lt 60 ] || fail "the bundle takes more than 60 MB"
  [ "$(find "$folder/fashion-mnist" -name '*.gz' | wc -l)" -eq 4 ] || fail "expected four data files"
  # All headers come from the bundle.
  printf '#include <%s>\n' CLI/CLI.hpp catch2/catch_all.hpp jemalloc/jemalloc.h cstdio jpeglib.h nlohmann/json.hpp openssl/evp.h \
    png.h spdlog/spdlog.h toml++/toml.h xxhash.h zlib.h >"$work/all.cpp"
  [ -e "$folder/include/catch2/catch_all.hpp" ] || sed -i 's/catch_all/catch/' "$work/all.cpp"
  g++ -std=c++20 -DSPDLOG_FMT_EXTERNAL -I "$folder/include" -M "$work/all.cpp" >"$work/headers" ||
    fail "it lacks a header: $(cat "$work/headers")"
  ! grep -E ' /usr/(local/)?include/([^ ]*/)?(CLI|catch2|fmt|jemalloc|nlohmann|openssl|spdlog|toml|xxhash|z(lib|conf)\.h|png(lib)?(conf)?\.h|j(peglib|config|morecfg)\.h)' \
    "$work/headers" || fail "it needs a header of the system"
  # A program links with the bundle alone, without the system's libraries.
  cat >"$work/use.cpp" <<'SOURCE'
#include <fmt/format.h>
#include <openssl/evp.h>
#include <png.h>
#include <stdio.h>
#include <jpeglib.h>
#include <zlib.h>
#include <lockstep/tests/catch_session.h>
int main() { return lockstep::testing::visible_cases(*new Catch::Session).empty() && fmt::format("{:.1f} {}", 2.5, zlibVersion()).substr(0, 4) == "2.5 " && EVP_MD_get_size(EVP_sha256()) == 32 && png_access_version_number() == PNG_LIBPNG_VER && jpeg_quality_scaling(50) == 100 ? 0 : 1; }
SOURCE
  ln -s "$root" "$work/lockstep"
  [ ! -e "$folder/lib/libCatch2.a" ] || libraries+=" -lCatch2"
  # shellcheck disable=SC2086  # several libraries
  g++ -std=c++20 -I "$folder/include" -I "$work" "$work/use.cpp" -o "$work/use" -L "$folder/lib" $libraries ||
    fail "it does not compile"
  "$work/use" || fail "it does not work"
  ! ldd "$work/use" | grep -E 'libfmt|libpng|libjpeg|libz|libcrypto|libspdlog' || fail "it needs a library of the system"
  # Other folders are not overwritten.
  mkdir "$work/mine"
  setup 1 --bundle "$work/mine"
  says "$work/mine exists and is not a bundle"
}

"case_$1"
