# lockstep_add_test(NAME name SOURCES file... LIBRARIES library... [LABELS label...] [TIMEOUT seconds] [NEEDS_CUDA])
#
# Adds a Catch2 executable. Each test case is one ctest test, "name: case"; with LOCKSTEP_TEST_BATCH=8 in ctest's
# environment eight are one, which saves the start of seven programs. Link lockstep::core where torch is not needed:
# such tests also run under ThreadSanitizer. Labels (cpu, the default; program, cuda, cuda2, multiprocess, torchrun,
# slow, fault) are given for the whole executable, or to one case as a Catch2 tag: TEST_CASE("...", "[cuda]").
# NEEDS_CUDA: all cases need CUDA; a build without CUDA leaves the executable out.
# program: the cases start the program, often; builds with a sanitizer leave the executable out, it would take minutes.
# slow: twenty seconds or more on two idle cores, also if only with a sanitizer, where test.sh --all leaves them out; ctest
# starts such tests first.
# A case labelled cuda (cuda2) is skipped on a machine with no GPU (fewer than two). Other cases that cannot run
# on a machine call SKIP_CASE("why") of <lockstep/tests/skip.h>.
function(lockstep_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "NEEDS_CUDA" "NAME;TIMEOUT" "SOURCES;LIBRARIES;LABELS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_NAME OR NOT arg_SOURCES OR NOT arg_LIBRARIES)
    message(FATAL_ERROR "lockstep_add_test(NAME, SOURCES and LIBRARIES are required): ${ARGN}")
  endif()
  if((arg_NEEDS_CUDA AND NOT LOCKSTEP_CUDA) OR ("program" IN_LIST arg_LABELS AND LOCKSTEP_BUILD_SANITIZE))
    return()
  endif()
  set(needs_torch OFF)
  if(arg_LIBRARIES MATCHES "(^|;)(lockstep|lockstep::lockstep|lockstep_app)(;|$)")
    set(needs_torch ON)
  endif()
  if(LOCKSTEP_BUILD_CORE_ONLY AND needs_torch)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 900)
  endif()

  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE lockstep_test_main ${arg_LIBRARIES} Catch2::Catch2 lockstep_warnings)
  target_compile_options(${arg_NAME} PRIVATE ${LOCKSTEP_NOT_OPTIMISED})
  set_target_properties(${arg_NAME} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${LOCKSTEP_BUILD_BATCH})
  foreach(source IN LISTS arg_SOURCES)
    file(STRINGS "${source}" cuda_cases REGEX "\\[cuda2?\\]")
    if(cuda_cases OR arg_LABELS MATCHES "cuda")
      add_dependencies(cuda_tests ${arg_NAME})
    endif()
  endforeach()
  if(arg_NEEDS_CUDA)
    add_dependencies(cuda_only_tests ${arg_NAME})
  endif()
  if(needs_torch)
    target_precompile_headers(${arg_NAME} REUSE_FROM lockstep_test_headers)
    # The program's malloc: with glibc's, steps of ResNet-18 take twice as long.
    target_link_libraries(${arg_NAME} PRIVATE lockstep_process)
  endif()

  # The cases are listed when ctest starts: a build with CUDA may link on a machine where it cannot run.
  set(script "${CMAKE_CURRENT_BINARY_DIR}/${arg_NAME}_tests.cmake")
  set(listing "${CMAKE_CURRENT_BINARY_DIR}/${arg_NAME}_cases.cmake")
  file(GENERATE OUTPUT "${script}" CONTENT
"set(LOCKSTEP_TEST_NAME [==[${arg_NAME}]==])
set(LOCKSTEP_TEST_PROGRAM [==[$<TARGET_FILE:${arg_NAME}>]==])
set(LOCKSTEP_TEST_EMULATOR [==[${CMAKE_CROSSCOMPILING_EMULATOR}]==])
set(LOCKSTEP_TEST_LISTING [==[${listing}]==])
set(LOCKSTEP_TEST_LABELS [==[${arg_LABELS}]==])
set(LOCKSTEP_TEST_TIMEOUT ${arg_TIMEOUT})
include([==[${PROJECT_SOURCE_DIR}/cmake/LockstepListCases.cmake]==])
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${script}")
endfunction()

# All test programs with a case that needs a GPU, and those of them that only a build with CUDA has.
add_custom_target(cuda_tests)
add_custom_target(cuda_only_tests)

# lockstep_give_program(test...): the cases of these executables start the program, whose path is LOCKSTEP_PROGRAM. Skips those
# that this build leaves out.
function(lockstep_give_program)
  foreach(test IN LISTS ARGN)
    if(TARGET ${test})
      target_compile_definitions(${test} PRIVATE LOCKSTEP_PROGRAM="$<TARGET_FILE:lockstep_cli>")
      add_dependencies(${test} lockstep_cli)
    endif()
  endforeach()
endfunction()

# lockstep_add_script_test(NAME name COMMAND command... [LABELS label...] [TIMEOUT seconds] [ON_DEMAND configuration]): adds
# a script as one ctest test. Exit code 77 means skipped; the last line of output then gives the reason. ON_DEMAND: only
# `ctest -C configuration` runs it.
function(lockstep_add_script_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT;ON_DEMAND" "COMMAND;LABELS")
  if(NOT arg_LABELS)
    set(arg_LABELS cpu)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 900)
  endif()
  if(arg_ON_DEMAND)
    list(APPEND arg_COMMAND CONFIGURATIONS ${arg_ON_DEMAND})
  endif()
  add_test(NAME "${arg_NAME}" COMMAND ${arg_COMMAND})
  set_tests_properties("${arg_NAME}" PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77)
  if("slow" IN_LIST arg_LABELS)
    set_tests_properties("${arg_NAME}" PROPERTIES COST 1000)  # as in LockstepListCases.cmake
  endif()
endfunction()

# lockstep_add_fuzz_test(NAME what LIBRARIES library... [ITERATIONS n] [TOKENS name] [PRECOMPILED]): adds the harness
# what_fuzz.cpp with the driver. It runs on the inputs in corpus/what/ and on mutations with the tokens of what.dict or
# name.dict, for n iterations (a tenth without a sanitizer, which finds little there), or for LOCKSTEP_FUZZ_SECONDS seconds of
# the environment. PRECOMPILED: with the tests' precompiled headers, for a harness that includes torch or JSON.
function(lockstep_add_fuzz_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "PRECOMPILED" "NAME;ITERATIONS;TOKENS" "LIBRARIES")
  if(NOT arg_ITERATIONS)
    set(arg_ITERATIONS 20000)
  endif()
  if(NOT LOCKSTEP_BUILD_SANITIZE)
    math(EXPR arg_ITERATIONS "${arg_ITERATIONS} / 10")
  endif()
  if(NOT arg_TOKENS)
    set(arg_TOKENS ${arg_NAME})
  endif()
  set(program ${arg_NAME}_fuzz)
  add_executable(${program} ${program}.cpp)
  target_link_libraries(${program} PRIVATE lockstep_fuzz_driver ${arg_LIBRARIES} lockstep_warnings)
  target_compile_options(${program} PRIVATE ${LOCKSTEP_NOT_OPTIMISED})
  if(arg_PRECOMPILED)
    target_precompile_headers(${program} REUSE_FROM lockstep_test_headers)
  endif()
  lockstep_add_script_test(NAME "fuzz: ${arg_NAME}" LABELS cpu fuzz TIMEOUT 86400
    COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${program}> --iterations ${arg_ITERATIONS}
      --dictionary "${CMAKE_CURRENT_SOURCE_DIR}/${arg_TOKENS}.dict"
      --failure "${CMAKE_CURRENT_BINARY_DIR}/${arg_NAME}.failure" "${CMAKE_CURRENT_SOURCE_DIR}/corpus/${arg_NAME}")
endfunction()

add_library(lockstep_test_main OBJECT "${PROJECT_SOURCE_DIR}/tests/catch_main.cpp")
target_compile_options(lockstep_test_main PRIVATE ${LOCKSTEP_NOT_OPTIMISED})
target_link_libraries(lockstep_test_main PUBLIC lockstep_core Catch2::Catch2 PRIVATE lockstep_warnings)

# The headers of most tests, precompiled as the tests are compiled.
if(NOT LOCKSTEP_BUILD_CORE_ONLY)
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/test_headers.cpp" CONTENT "")
  add_library(lockstep_test_headers OBJECT "${PROJECT_BINARY_DIR}/test_headers.cpp")
  target_compile_options(lockstep_test_headers PRIVATE ${LOCKSTEP_NOT_OPTIMISED})
  target_link_libraries(lockstep_test_headers PRIVATE lockstep nlohmann_json::nlohmann_json Catch2::Catch2 lockstep_warnings)
  target_precompile_headers(lockstep_test_headers PRIVATE <torch/types.h> <nlohmann/json.hpp> <lockstep/tests/catch.h>)
endif()
