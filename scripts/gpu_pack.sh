#!/usr/bin/env bash
# scripts/gpu_pack.sh [--built FOLDER] [--limit MIB]: packs what `scripts/gpu_check.sh lease` needs on a machine with a
# GPU that is lent for some minutes, into .gpu/pack.tar.xz, which travels with the checkout:
#
#   the build   the program, the GPU tests, compare_case, without symbols, and ctest's files
#   the bundle  of scripts/setup.sh --bundle bundle: the data, and libraries to build with if the build does not start
#
# Builds in build/cuda. The build must be linked with the bundle, and made for that machine's GPU and torch:
#
#   CUDAARCHS=90 LOCKSTEP_BUILD_TORCH=<LibTorch 2.11 with CUDA> scripts/gpu_pack.sh
#
#   --built FOLDER   packs that build
#   --limit MIB      what the checkout and the pack may take together; default: 64
#
# Exit code: 0 when it is packed and small enough, 1 otherwise, 2 usage.
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"

help_first "$@"
built='' limit=64 bundle=$root/bundle pack=$root/.gpu/pack.tar.xz
while [ $# -gt 0 ]; do
  case $1 in
    --built) need_value "a folder" "$@" && built=$2 ;;
    --limit) need_value "a number" "$@" && limit=$2 ;;
    *) usage "unknown argument '$1'" ;;
  esac
  shift 2
done
[ -d "$bundle" ] || die "there is no bundle" "scripts/setup.sh --bundle bundle"
for header in toml++/toml.h xxhash.h png.h jpeglib.h; do
  [ -e "$bundle/include/$header" ] || die "the bundle lacks $header" "scripts/setup.sh --bundle bundle, once more"
done
if [ -z "$built" ]; then
  export LOCKSTEP_BUILD_TESTS=on LOCKSTEP_BUILD_BUNDLE=$bundle
  build cuda "lockstep_cli compare_case cuda_tests"
  built=$root/build/cuda
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Copies what travels of the build, with its folders.
copy_build() {
  local file
  cd "$built"
  for file in lockstep scripts/compare_case $(find tests -type f -perm -u+x -name '*_tests'); do
    mkdir -p "$work/cuda/$(dirname "$file")"
    strip -o "$work/cuda/$file" "$file"
  done
  # ctest's files; the cases are listed anew there.
  find . -path ./CMakeFiles -prune -o -type f \
    \( -name CTestTestfile.cmake -o -name '*_tests.cmake' -o -name CMakeCache.txt \) -print |
    while read -r file; do
      mkdir -p "$work/cuda/$(dirname "$file")"
      cp "$file" "$work/cuda/$file"
    done
  cd "$root"
}

copy_build
mkdir -p "$work/bundle" "$(dirname "$pack")"
cp -r "$bundle/include" "$bundle/lib" "$bundle/fashion-mnist" "$work/bundle/"
tar -C "$work" --sort=name -c cuda bundle | xz -T1 -9 >"$pack"

# Files that git neither tracks nor ignores travel, too; tracked files that were deleted do not.
checkout=$(git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for file; do
  [ ! -L "$file" ] && [ ! -e "$file" ] || printf "%s\0" "$file"; done' sh | du -cb --files0-from=- | tail -n 1 | cut -f 1)
size=$((checkout + $(stat -c %s "$pack")))
echo "$pack: $(stat -c %s "$pack") bytes, with the checkout $size of $((limit << 20)) bytes"
[ "$size" -le $((limit << 20)) ] ||
  die "the pack is too large to travel" "CUDAARCHS=<one generation of GPUs>, or --limit"
