#!/usr/bin/env bash
# consumers.sh: the examples are built from the installed tree as programs of users, and run.
source "$(dirname "$0")/installed.sh"

examples_are_short() {
  local example lines
  for example in "$root"/examples/*.cpp; do
    lines=$(wc -l <"$example")
    [ "$lines" -le 90 ] || fail "$example has $lines lines, at most 90 are wanted"
  done
}

# A program of a user's own project: own_model by find_package(lockstep), with CMake's defaults.
builds_by_cmake() {
  mkdir "$work/by_cmake"
  cp "$root/examples/own_model.cpp" "$work/by_cmake/"
  cat >"$work/by_cmake/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(lockstep 0.2 REQUIRED)
add_executable(own_model own_model.cpp)
target_link_libraries(own_model PRIVATE lockstep::lockstep)
CMAKE
  build "$work/by_cmake"
}

# Decoding alone: the program needs neither torch nor liblockstep.so, and liblockstep.so needs no libpng.
decodes_without_torch() {
  mkdir "$work/decodes"
  cat >"$work/decodes/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(lockstep 0.2 REQUIRED)
add_executable(decodes decodes.cpp)
target_link_libraries(decodes PRIVATE lockstep::images)
CMAKE
  cat >"$work/decodes/decodes.cpp" <<'SOURCE'
#include <fstream>
#include <iostream>
#include <iterator>
#include <lockstep/data/images/pixels.h>
#include <lockstep/support/error.h>
int main(int, char** argv) try {
  std::ifstream file(argv[1], std::ios::binary);
  const std::vector<uint8_t> bytes(std::istreambuf_iterator<char>(file), {});
  const auto pixels = lockstep::decode_image(bytes, {.channels = 3, .size = 4});
  std::cout << pixels.channels << " x " << pixels.height << " x " << pixels.width << "\n";
} catch (const lockstep::DataError& error) {
  std::cout << error.message() << "\n";
  return 3;
}
SOURCE
  build "$work/decodes"
  local program=$work/decodes/build/decodes corpus=$root/tests/fuzz/corpus/image file code=0 flags
  for file in png_type_2_bits_8 jpeg_420; do
    [ "$("$program" "$corpus/$file")" = "3 x 4 x 4" ] || fail "$file was not decoded"
  done
  "$program" "$root/LICENSE" >"$work/out" || code=$?
  [ "$code" = 3 ] || fail "code $code: $(cat "$work/out")"
  grep -q 'is not a PNG or JPEG file' "$work/out" || fail "$(cat "$work/out")"
  ! ldd "$program" | grep -E 'torch|liblockstep\.so|not found' || fail "decoding needs these libraries"
  ! readelf -d "$prefix/$LIBDIR/liblockstep.so" | grep -E 'NEEDED.*lib(png|jpeg)' || fail "liblockstep.so needs these"
  command -v pkg-config >/dev/null || return 0
  flags=$(PKG_CONFIG_PATH=$prefix/$LIBDIR/pkgconfig pkg-config --cflags --libs lockstep-images)
  # shellcheck disable=SC2086
  quietly "$CXX" -std=c++20 "$work/decodes/decodes.cpp" $flags -o "$work/by_pkg_config"
  [ "$("$work/by_pkg_config" "$corpus/jpeg_420")" = "3 x 4 x 4" ] || fail "jpeg_420 was not decoded"
}

has_no_components() {
  mkdir "$work/components"
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(consumer LANGUAGES NONE)\n%s\n' \
    'find_package(lockstep 0.2 REQUIRED COMPONENTS train)' >"$work/components/CMakeLists.txt"
  if cmake -S "$work/components" -B "$work/components/build" -G Ninja "-DCMAKE_PREFIX_PATH=$prefix" \
    >"$work/log" 2>&1; then
    fail "a component that does not exist was found"
  fi
  grep -q 'lockstep has no components, but train is asked for' "$work/log" || fail "$(cat "$work/log")"
}

# A device that is not there is an error with a hint, not an abort.
own_model_names_a_wrong_device() {
  local code=0
  "$work/by_cmake/build/own_model" tpu >"$work/out" 2>&1 || code=$?
  [ "$code" = 2 ] || fail "code $code: $(cat "$work/out")"
  grep -q "tpu" "$work/out" || fail "$(cat "$work/out")"
}

# The other one by hand. With BUG in the environment its model has a bug, which takes no second compilation.
builds_by_pkg_config() {
  local flags libraries
  command -v pkg-config >/dev/null || { echo "not tested: no pkg-config"; return; }
  export PKG_CONFIG_PATH=$prefix/$LIBDIR/pkgconfig
  [ "$(pkg-config --modversion lockstep)" = "$VERSION" ] || fail "pkg-config names another version"
  flags=$(pkg-config --cflags lockstep)
  libraries=$(pkg-config --libs lockstep)
  sed 's/Linear(3, 1)/Linear(std::getenv("BUG") ? 4 : 3, 1)/' "$root/examples/own_loop.cpp" >"$work/own_loop.cpp"
  grep -q 'getenv("BUG")' "$work/own_loop.cpp" || fail "own_loop.cpp has no Linear(3, 1) any more"
  # shellcheck disable=SC2086
  (cd "$work" && quietly ${ccache:+"$ccache"} "$CXX" -std=c++20 $flags -include cstdlib -c own_loop.cpp -o own_loop.o)
  # shellcheck disable=SC2086
  quietly "$CXX" "$work/own_loop.o" $libraries -o "$work/own_loop"
}

# Two replicas; the second half from the checkpoint of the first. The losses are those of one run, to the last digit.
own_model_resumes() {
  local program=$work/by_cmake/build/own_model folder=$work/checkpoint
  "$program" cpux2 10 >"$work/whole"
  "$program" cpux2 5 "$folder" >"$work/halves" || true  # its accuracy need not be reached yet
  "$program" cpux2 10 "$folder" >"$work/second"
  [ "$(head -n 1 "$work/second" | cut -d: -f1)" = "epoch 6" ] || fail "it did not go on: $(cat "$work/second")"
  diff <(grep epoch "$work/whole") <(grep -h epoch "$work/halves" "$work/second") ||
    fail "the resumed run is another one than the whole one (<)"
}

own_loop_runs_in_two_processes() {
  [ -e "$work/own_loop" ] || return 0
  "$prefix/bin/lockstep" launch -n 2 -- "$work/own_loop" cpu >"$work/two" 2>&1 || fail "$(cat "$work/two")"
  grep -q 'on 2 replicas' "$work/two" || fail "expected two replicas: $(cat "$work/two")"
  ! grep -q "launcher's store" "$work/two" || fail "launch says that they have not joined: $(cat "$work/two")"
}

# torch's error in the user's own model is told, and ends the program without an abort.
own_loop_tells_a_bug_of_its_model() {
  local code=0
  [ -e "$work/own_loop" ] || return 0
  BUG=1 "$work/own_loop" >"$work/out" 2>&1 || code=$?
  [ "$code" = 1 ] || fail "code $code: $(cat "$work/out")"
  grep -q 'shapes cannot be multiplied' "$work/out" || fail "$(cat "$work/out")"
}

install_into "$prefix"
run_checks examples_are_short builds_by_cmake decodes_without_torch has_no_components builds_by_pkg_config own_model_resumes \
  own_model_names_a_wrong_device own_loop_runs_in_two_processes own_loop_tells_a_bug_of_its_model
