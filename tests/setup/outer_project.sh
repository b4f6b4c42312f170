#!/usr/bin/env bash
# outer_project.sh FOLDER ARCHIVE [CMAKE-ARGUMENT...]: a project without settings that adds lockstep with add_subdirectory
# compiles, links, and keeps its settings. FOLDER stays the same, so that ccache finds its files again. ARCHIVE is the
# library lockstep::core of this build: the project compiles two of its sources and links with this one.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
outer=$1 archive=$2
shift 2
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
#include <lockstep/support/files/sha256.h>

int main() { std::puts(lockstep::Sha256().hex().c_str()); }
SOURCE
cat >"$outer/engine.cpp" <<'SOURCE'
#include <torch/arg.h>  // of torch's second folder

#include <lockstep/parallel/replica_random.h>  // includes the first one; others take ten seconds

void with_own_numbers() { const lockstep::ReplicaRandom random(0, 0, 0); }
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
# kernels_portable.cpp has flags of its own.
ninja -C "$outer/build" CMakeFiles/{core.dir/core,engine.dir/engine}.cpp.o \
  lockstep/CMakeFiles/lockstep_core.dir/{support/cpu/parallel_parts,models/layers/cpu/kernels_portable}.cpp.o
cp "$archive" "$outer/build/lockstep/"
link=$(ninja -C "$outer/build" -t commands core | tail -n 1)
(cd "$outer/build" && eval "$link")
found=$("$outer/build/core")
expected=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  # of no bytes, FIPS 180-4
[ "$found" = "$expected" ] || { echo "expected $expected, found $found"; exit 1; }
