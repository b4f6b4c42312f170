# Run by ctest, once for each test executable: one ctest test per Catch2 case (see LockstepTest.cmake).
if(NOT EXISTS "${LOCKSTEP_TEST_PROGRAM}")
  add_test("${LOCKSTEP_TEST_NAME}: NOT BUILT" "${LOCKSTEP_TEST_PROGRAM}")
  return()
endif()

if(NOT EXISTS "${LOCKSTEP_TEST_LISTING}" OR "${LOCKSTEP_TEST_PROGRAM}" IS_NEWER_THAN "${LOCKSTEP_TEST_LISTING}"
   OR "${CMAKE_CURRENT_LIST_FILE}" IS_NEWER_THAN "${LOCKSTEP_TEST_LISTING}")
  execute_process(COMMAND ${LOCKSTEP_TEST_EMULATOR} "${LOCKSTEP_TEST_PROGRAM}" --list-for-ctest
                  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${LOCKSTEP_TEST_PROGRAM} --list-for-ctest ended with ${status}:\n${output}${errors}")
  endif()
  # One case per line: name, tab, tags. Brackets and semicolons would upset CMake's lists.
  string(REPLACE ";" "\\;" output "${output}")
  string(REPLACE "\n" ";" output "${output}")
  set(text "")
  foreach(line IN LISTS output)
    if(NOT line MATCHES "^(.+)\t(.*)$")
      continue()
    endif()
    set(name "${CMAKE_MATCH_1}")
    set(tags "${CMAKE_MATCH_2}")
    set(labels ${LOCKSTEP_TEST_LABELS})
    foreach(label cpu cuda cuda2 multiprocess torchrun slow fault)
      if(",${tags}," MATCHES ",${label},")
        list(APPEND labels ${label})
      endif()
    endforeach()
    if(NOT labels)
      set(labels cpu)
    endif()
    # Catch2 reads , as "or", [ as the start of a tag, and at the start - as a flag and ~ as "not". A name that matches
    # no case is an error.
    string(REGEX REPLACE "([\\,[])" "\\\\\\1" pattern "${name}")
    string(REGEX REPLACE "^([-~])" "\\\\\\1" pattern "${pattern}")
    list(JOIN labels "," label_text)
    # Parallel tests end sooner when slow ones start first. ctest knows the time of a test only after a run in this folder.
    set(cost "")
    if(",${label_text}," MATCHES ",slow,")
      set(cost "COST 1000")
    endif()
    set(test "[==[${LOCKSTEP_TEST_NAME}: ${name}]==]")
    set(emulator "")
    foreach(word IN LISTS LOCKSTEP_TEST_EMULATOR)
      string(APPEND emulator "[==[${word}]==] ")
    endforeach()
    string(APPEND text "add_test(${test} ${emulator}[==[${LOCKSTEP_TEST_PROGRAM}]==] [==[${pattern}]==])\n"
      "set_tests_properties(${test} PROPERTIES LABELS [==[${labels}]==] TIMEOUT ${LOCKSTEP_TEST_TIMEOUT} ${cost}"
      " SKIP_RETURN_CODE 77 ENVIRONMENT [==[LOCKSTEP_TEST_LABELS=${label_text}]==])\n")
  endforeach()
  file(WRITE "${LOCKSTEP_TEST_LISTING}" "${text}")
endif()
include("${LOCKSTEP_TEST_LISTING}")
