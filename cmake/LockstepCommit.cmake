# The commit that a program was built from, for --version. The build runs this file as a script each time:
#   cmake -D SOURCE=<folder of lockstep> -D OUTPUT=<the source to write> -P LockstepCommit.cmake
# It writes the source only when the commit has changed, so that nothing else is built again.
# "unknown": not a checkout of lockstep's own, or no git.
set(commit unknown)
set(ENV{GIT_OPTIONAL_LOCKS} 0)
find_program(GIT git)
if(GIT)
  # A copy within another project's checkout must not take that one's commit.
  execute_process(COMMAND "${GIT}" -C "${SOURCE}" rev-parse --show-toplevel
                  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE no_checkout)
  file(REAL_PATH "${SOURCE}" source)
  if(NOT no_checkout AND top STREQUAL source)
    execute_process(COMMAND "${GIT}" -C "${SOURCE}" describe --always --dirty --abbrev=10
                    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(described MATCHES "^[0-9A-Za-z._/-]+$")
      set(commit "${described}")
    endif()
  endif()
endif()

set(text "// Written by the build (cmake/LockstepCommit.cmake).
#include <lockstep/app/machine/version.h>

std::string_view lockstep::built_commit() { return \"${commit}\"; }
")
set(old "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" old)
endif()
if(NOT old STREQUAL text)
  file(WRITE "${OUTPUT}" "${text}")
endif()
