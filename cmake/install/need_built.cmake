# Ends the installation before it writes anything, unless all of lockstep_built is there.
foreach(lockstep_file IN LISTS lockstep_built)
  if(NOT EXISTS "${lockstep_file}")
    message(FATAL_ERROR "lockstep: nothing was installed, since ${lockstep_file} has not been built: first run\n"
                        "  ${lockstep_build_command}")
  endif()
endforeach()
