# Language, warnings, sanitizers and ccache, for lockstep's own targets only: in a project that adds this folder, these
# settings apply to this folder alone.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")  # torch does the arithmetic; -O3 only takes longer to compile

# models/layers/cpu/ uses GCC's vectors and the instruction sets of x86-64 CPUs.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  message(FATAL_ERROR "lockstep's CPU kernels are for x86-64, this is ${CMAKE_SYSTEM_PROCESSOR}")
endif()
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "lockstep's CPU kernels need g++ 12 or newer, the compiler is "
                      "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}: set CXX")
endif()

# For code that need not be fast: a fifth less to compile than at -O1. g++ 13 and newer load a header that was
# precompiled at -O2 only with these two flags of -O2; without it a source with torch takes twice as long.
set(LOCKSTEP_LITTLE_OPTIMISED $<$<CONFIG:Release>:-Og>)
if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  list(APPEND LOCKSTEP_LITTLE_OPTIMISED
    $<$<CONFIG:Release>:-munroll-only-small-loops> $<$<CONFIG:Release>:-mvzeroupper>)
endif()

# For tests, which run once: Catch2's macros take half as long to compile.
set(LOCKSTEP_NOT_OPTIMISED -O0)

# One compilation serves the program and liblockstep.so. As in a program, functions of one source may be inlined.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIC> $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-semantic-interposition>
                    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIC>)

# g++ collects no garbage below 1 GB: a tenth less time. A unit then takes up to 2 GB.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1048576>)

# Links in a fifth of the time, where it is installed and no other linker is asked for.
find_program(LOCKSTEP_MOLD mold DOC "Linker, used where it is installed")
if(LOCKSTEP_MOLD AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_EXE_LINKER_FLAGS MATCHES "-fuse-ld")
  add_link_options($<$<LINK_LANG_AND_ID:CXX,GNU>:-fuse-ld=mold>)
endif()

# Warnings are errors in lockstep's own code: torch and the other libraries are SYSTEM includes. With newer compilers than
# CI's they stay warnings, since those may have new ones.
set(_error "")
set(_cuda_error "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(_error -Werror)
  set(_cuda_error -Werror=all-warnings -Xcompiler=-Werror)
endif()
# (No -Wpedantic for .cu files: nvcc's own output for the host compiler does not pass it.)
add_library(lockstep_warnings INTERFACE)
target_compile_options(lockstep_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual ${_error}>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra ${_cuda_error}>)

if(LOCKSTEP_BUILD_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LOCKSTEP_BUILD_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  # These checks are on each use of a pointer and take a fifth of the time to compile. AddressSanitizer sees most of what
  # they find.
  if(LOCKSTEP_BUILD_SANITIZE MATCHES "undefined")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,alignment,object-size,vptr>
                        $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=nonnull-attribute,returns-nonnull-attribute>)
  endif()
  # With sanitizers g++ 12 warns about its own standard library (GCC bug 105562).
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${LOCKSTEP_BUILD_SANITIZE})
endif()

# ccache needs these settings to cache precompiled headers and sources that use them.
find_program(LOCKSTEP_CCACHE ccache DOC "Compiler cache, used where it is installed")
set(LOCKSTEP_USES_CCACHE OFF)
if(LOCKSTEP_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(LOCKSTEP_USES_CCACHE ON)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros "${LOCKSTEP_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()
