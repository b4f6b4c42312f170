#!/usr/bin/env bash
# outer_project.sh FOLDER [CMAKE-ARGUMENT...]: a project without settings that adds lockstep with add_subdirectory
# compiles, links, and keeps its settings. FOLDER stays the same, so that ccache finds its files again.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
outer=$1
shift
rm -rf "$outer"
mkdir -p "$outer"

cat >"$outer/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(outer LANGUAGES CXX)

# Sets `out` to all settings of this folder and of the cache, except those of the project's name and of CMake's checks.
function(settings out)
  get_directory_property(names VARIABLES)
  get_directory_property(properties COMPILE_OPTIONS)
  get_directory_property(definitions COMPILE_DEFINITIONS)
  get_directory_property(links LINK_OPTIONS)
  get_directory_property(tests TESTS)
  set(found "options ${properties}|definitions ${definitions}|links ${links}|tests ${tests}")
  list(SORT names)
  foreach(name IN LISTS names)
    if(name MATCHES "^(CMAKE_(BUILD|CXX|CUDA|EXPORT|C|EXE|SHARED|POSITION|INTERPROCEDURAL|RUNTIME|LIBRARY|UNITY)_?.*|BUILD_.*)$")
      string(APPEND found "|${name}=${${name}}")
    endif()
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

settings(before)
add_subdirectory("${LOCKSTEP}" lockstep)
settings(after)
if(NOT before STREQUAL after)
  message(FATAL_ERROR "lockstep changed the outer project's settings from\n${before}\nto\n${after}")
endif()

add_executable(core core.cpp)
target_link_libraries(core PRIVATE lockstep::core)
add_library(engine OBJECT engine.cpp)
target_link_libraries(engine PRIVATE lockstep::lockstep)
CMAKE
cat >"$outer/core.cpp" <<'SOURCE'
#include <cstdio>
#include <lockstep/data/sha256.h>

int main() { std::puts(lockstep::Sha256().hex().c_str()); }
SOURCE
cat >"$outer/engine.cpp" <<'SOURCE'
#include <lockstep/parallel/trainer.h>

lockstep::TrainerOptions options() { return {.devices = {torch::kCPU, torch::kCPU}}; }
SOURCE

cmake -S "$outer" -B "$outer/build" -G Ninja "-DLOCKSTEP=$root" -DLOCKSTEP_BUILD_CUDA=off \
  "-DCMAKE_CXX_COMPILER_LAUNCHER=$(command -v ccache || true)" "$@"
for setting in CMAKE_BUILD_TYPE CMAKE_CXX_STANDARD; do
  ! grep "^$setting:.*=..*" "$outer/build/CMakeCache.txt" || { echo "$setting is in the cache"; exit 1; }
done
if [ -e "$outer/build/compile_commands.json" ]; then
  echo "lockstep writes a compile_commands.json in another project"
  exit 1
fi
if [ -e "$outer/build/lockstep/tests" ]; then
  echo "lockstep's tests are part of the outer project"
  exit 1
fi
ninja -C "$outer/build" core CMakeFiles/engine.dir/engine.cpp.o
found=$("$outer/build/core")
expected=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  # of no bytes, FIPS 180-4
[ "$found" = "$expected" ] || { echo "expected $expected, found $found"; exit 1; }
